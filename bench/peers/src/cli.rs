//! The command line.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::variant::Variant;
use crate::workload::Workload;

const USAGE: &str = "usage: MEASURE FILE [--rounds N] [--variant V] [--contestants A,B]";

pub struct Cli {
    pub measure: String,
    pub workload: Workload,
    pub variant: String,
    pub rounds: usize,
    contestants: Option<Vec<String>>,
}

impl Cli {
    /// Reads the command line and the workload that it names.
    ///
    /// # Errors
    /// Bad arguments, a bad file.
    pub fn read() -> Result<Self> {
        let (mut measure, mut file) = (None, None);
        let (mut variant, mut rounds, mut contestants) = ("shared".to_owned(), 5, None);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().context("a flag without its value");
            match argument.as_str() {
                "--variant" => variant = value()?,
                "--rounds" => rounds = value()?.parse().context("--rounds wants a number")?,
                "--contestants" => {
                    contestants = Some(value()?.split(',').map(str::to_owned).collect());
                }
                flag if flag.starts_with('-') => bail!("no such flag: {flag}"),
                word if measure.is_none() => measure = Some(word.to_owned()),
                path => file = Some(PathBuf::from(path)),
            }
        }
        ensure!(rounds > 0, "--rounds wants at least 1");
        let (measure, file) = measure.zip(file).context(USAGE)?;
        let workload = Variant::parse(&variant)?.of(Workload::load(&file)?);
        Ok(Self {
            measure,
            workload,
            variant,
            rounds,
            contestants,
        })
    }

    /// Whether a contestant takes part.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.contestants
            .as_ref()
            .is_none_or(|names| names.iter().any(|wanted| wanted == name))
    }
}
