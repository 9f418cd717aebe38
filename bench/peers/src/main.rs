//! `kvcache-peers queries|updates|concurrent|holes FILE …`: one JSON object for each contestant and measure.
//!
//! Pin it to one core, `concurrent` to two.

use anyhow::{Result, bail};
use kvcache_peers::cli::Cli;
use kvcache_peers::measures::{Concurrent, Holes, Queries, Updates, run};

fn main() -> Result<()> {
    let cli = Cli::read()?;
    match cli.measure.as_str() {
        "queries" => run(&cli, &Queries),
        "updates" => run(&cli, &Updates),
        "concurrent" => run(&cli, &Concurrent),
        "holes" => run(&cli, &Holes),
        other => bail!("no such measure (queries, updates, concurrent, holes): {other}"),
    }
}
