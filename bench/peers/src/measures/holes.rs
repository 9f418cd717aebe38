//! Whether an eviction in the middle of a chain is counted, and healed when the block comes back.
//!
//! One worker stores a chain of 100 blocks; block 50 alone goes, then it comes again. Right are 100, 50, 100.

use super::{Measurement, Rounds};
use crate::contestant::{Contestant, Reader};
use crate::figures::print;
use crate::workload::{Span, Workload};
use anyhow::Result;
use serde_json::json;

const BLOCKS: usize = 100;
const HOLE: usize = 50;

struct HolesRounds<C: Contestant> {
    index: C,
    held: Vec<u32>,
}

/// Begins it.
pub struct Holes;

impl Measurement for Holes {
    fn begin<C: Contestant + 'static>(&self, workload: &Workload) -> Result<Box<dyn Rounds>> {
        Ok(Box::new(HolesRounds {
            index: C::new(workload)?,
            held: Vec::new(),
        }))
    }
}

impl<C: Contestant> Rounds for HolesRounds<C> {
    fn round(&mut self, workload: &Workload) -> Result<()> {
        let all = Span {
            worker: 0,
            sequence: 0,
            first: 0,
            blocks: BLOCKS,
        };
        let hole = Span {
            first: HOLE,
            blocks: 1,
            ..all
        };
        let tokens = workload.tokens(&all).to_vec();
        self.index = C::new(workload)?;
        self.held.clear();
        for event in [
            C::store(workload, &all),
            C::remove(workload, &hole),
            C::store(workload, &hole),
        ] {
            self.index.apply(vec![event])?;
            let reader = self.index.reader();
            let scores = reader.scores(&reader.query_tokens(&tokens));
            self.held.push(scores.get(&0).copied().unwrap_or(0));
        }
        Ok(())
    }

    fn print(&self, variant: &str, workload: &Workload) {
        let figures = json!({ "held": self.held, "right": [BLOCKS, HOLE, BLOCKS] });
        print::<C>("hole", variant, workload, figures);
    }
}
