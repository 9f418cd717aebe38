//! Alternating rounds: whatever else the machine does hits every contestant alike.

use anyhow::{Context, Result, ensure};

use crate::cli::Cli;
use crate::contestant::Contestant;
use crate::contestants::{Compressed, Dynamo, Kvcache, Positional, Smg};
use crate::workload::Workload;

/// A measurement of one contestant, in rounds.
pub trait Rounds {
    /// # Errors
    /// What the index refuses.
    fn round(&mut self, workload: &Workload) -> Result<()>;

    fn print(&self, variant: &str, workload: &Workload);
}

/// How a measurement begins, for any contestant.
pub trait Measurement {
    /// # Errors
    /// What the index refuses.
    fn begin<C: Contestant + 'static>(&self, workload: &Workload) -> Result<Box<dyn Rounds>>;
}

/// Measures all contestants in alternating rounds and prints the figures.
///
/// # Errors
/// What an index refuses.
pub fn run(cli: &Cli, measurement: &impl Measurement) -> Result<()> {
    let mut all: Vec<Box<dyn Rounds>> = Vec::new();
    add::<Kvcache>(&mut all, cli, measurement)?;
    add::<Dynamo<Compressed>>(&mut all, cli, measurement)?;
    add::<Smg>(&mut all, cli, measurement)?;
    add::<Dynamo<Positional>>(&mut all, cli, measurement)?;
    ensure!(!all.is_empty(), "--contestants names none of them");
    for _ in 0..cli.rounds {
        for contestant in &mut all {
            contestant.round(&cli.workload)?;
        }
    }
    for contestant in &all {
        contestant.print(&cli.variant, &cli.workload);
    }
    Ok(())
}

fn add<C: Contestant + 'static>(
    all: &mut Vec<Box<dyn Rounds>>,
    cli: &Cli,
    measurement: &impl Measurement,
) -> Result<()> {
    if cli.wants(C::NAME) {
        let begun = measurement.begin::<C>(&cli.workload);
        all.push(begun.with_context(|| C::NAME.to_owned())?);
    }
    Ok(())
}
