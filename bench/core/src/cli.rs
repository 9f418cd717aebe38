//! The command line.

use anyhow::{Context, Result, bail, ensure};

pub struct Cli {
    pub measure: String,
    pub rounds: usize,
    /// Blocks that one stream holds.
    pub blocks: usize,
    /// Where a measure has a number of streams.
    pub streams: usize,
}

impl Cli {
    /// Reads the command line.
    ///
    /// # Errors
    /// Bad arguments.
    pub fn read() -> Result<Self> {
        let mut cli = Self {
            measure: String::new(),
            rounds: 5,
            blocks: 262_144,
            streams: 128,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<usize> {
                let value = arguments.next().context("a flag without its value")?;
                value.parse().context("a flag wants a number")
            };
            match argument.as_str() {
                "--rounds" => cli.rounds = number()?,
                "--blocks" => cli.blocks = number()?,
                "--streams" => cli.streams = number()?,
                flag if flag.starts_with('-') => bail!("no such flag: {flag}"),
                word => word.clone_into(&mut cli.measure),
            }
        }
        ensure!(cli.rounds > 0, "--rounds wants at least 1");
        ensure!(cli.blocks >= 4096, "--blocks wants at least 4096");
        Ok(cli)
    }
}
