//! `kvcache-goals MEASURE [--rounds N] [--blocks N] [--streams N]`: one JSON object a figure.

use anyhow::{Result, bail};
use kvcache_goals::cli::Cli;
use kvcache_goals::{measures, publisher};

fn main() -> Result<()> {
    let cli = Cli::read()?;
    match cli.measure.as_str() {
        "wire" => measures::wire::run(&cli),
        "decoding" => measures::decoding::run(&cli),
        "snapshot" => measures::snapshot::run(&cli),
        "beside" => measures::beside::run(&cli),
        "streams" => measures::streams::run(&cli),
        "memory" => measures::memory::run(&cli),
        "publisher" => publisher::run(&cli),
        other => {
            bail!("no such measure (wire, decoding, snapshot, beside, streams, memory): {other}")
        }
    }
}
