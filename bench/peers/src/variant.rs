//! What the same workload becomes under other assumptions about the engines.

use std::collections::HashMap;

use anyhow::{Result, bail};
use dynamo_kv_router::compute_block_hash_for_seq;
use dynamo_kv_router::protocols::{BlockHashOptions, compute_seq_hash_for_block};

use crate::workload::{Prompt, Span, Workload};

/// Above every token of W1, so that tokens of different workers never meet.
const VOCABULARY: u32 = 1 << 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Engines agree on wire hashes and share contents.
    Shared,
    /// They share contents, each with wire hashes of its own.
    PrivateWires,
    /// No block is in two engines. There are no queries.
    NothingShared,
    /// As shared, one block an event.
    OneBlock,
}

impl Variant {
    /// By its name on the command line.
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "shared" => Self::Shared,
            "private-wires" => Self::PrivateWires,
            "nothing-shared" => Self::NothingShared,
            "one-block" => Self::OneBlock,
            _ => {
                bail!("no such variant (shared, private-wires, nothing-shared, one-block): {name}")
            }
        })
    }

    /// The workload as this variant has it.
    #[must_use]
    pub fn of(self, mut workload: Workload) -> Workload {
        match self {
            Self::Shared => workload,
            Self::PrivateWires => {
                workload.private_wires = true;
                workload
            }
            Self::NothingShared => nothing_shared(workload),
            Self::OneBlock => {
                workload.stores = one_block(&workload.stores);
                workload.removes = one_block(&workload.removes);
                workload
            }
        }
    }
}

fn one_block(spans: &[Span]) -> Vec<Span> {
    let each = |span: &Span| {
        let span = *span;
        span.range().map(move |first| Span {
            first,
            blocks: 1,
            ..span
        })
    };
    spans.iter().flat_map(each).collect()
}

/// Gives every (worker, sequence) a sequence of its own, in tokens that no other worker uses.
fn nothing_shared(workload: Workload) -> Workload {
    let Workload {
        block_size,
        workers,
        sequences,
        mut stores,
        mut removes,
        ..
    } = workload;
    let mut own = Vec::new();
    let mut numbers: HashMap<(u32, usize), usize> = HashMap::new();
    for span in stores.iter_mut().chain(&mut removes) {
        let original = (span.worker, span.sequence);
        span.sequence = *numbers.entry(original).or_insert_with(|| {
            own.push(moved(&sequences[span.sequence], span.worker, block_size));
            own.len() - 1
        });
    }
    Workload {
        block_size,
        workers,
        sequences: own,
        stores,
        removes,
        ..Workload::default()
    }
}

fn moved(prompt: &Prompt, worker: u32, block_size: u32) -> Prompt {
    let shift = (worker + 1) * VOCABULARY;
    let tokens: Vec<u32> = prompt.tokens.iter().map(|token| token + shift).collect();
    let local = compute_block_hash_for_seq(&tokens, block_size, BlockHashOptions::default());
    let chained = compute_seq_hash_for_block(&local);
    Prompt {
        tokens,
        local: local.into_iter().map(|hash| hash.0).collect(),
        chained,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Two workers with the same sequence of four blocks.
    fn both() -> Workload {
        let prompt = Prompt {
            tokens: (0..64).collect(),
            local: (100..104).collect(),
            chained: (200..204).collect(),
        };
        let span = |worker| Span {
            worker,
            sequence: 0,
            first: 0,
            blocks: 4,
        };
        Workload {
            block_size: 16,
            workers: 2,
            sequences: vec![prompt],
            stores: vec![span(0), span(1)],
            removes: vec![span(1)],
            ..Workload::default()
        }
    }

    fn wires(workload: &Workload) -> HashSet<u64> {
        workload
            .stores
            .iter()
            .flat_map(|span| workload.wires(span))
            .collect()
    }

    #[test]
    fn private_wires_differ_between_workers_only() {
        assert_eq!(wires(&both()).len(), 4);
        let private = Variant::PrivateWires.of(both());
        assert_eq!(wires(&private).len(), 8);
        let rest = Span {
            first: 1,
            blocks: 3,
            ..private.stores[1]
        };
        assert_eq!(
            private.parent(&rest),
            private.wires(&private.stores[1]).next()
        );
    }

    #[test]
    fn nothing_shared_shares_nothing() {
        let apart = Variant::NothingShared.of(both());
        let tokens: Vec<&[u32]> = apart.stores.iter().map(|span| apart.tokens(span)).collect();
        assert!(tokens[0].iter().all(|token| !tokens[1].contains(token)));
        assert_eq!(wires(&apart).len(), 8);
        assert_eq!(apart.removes, [apart.stores[1]]);
    }

    #[test]
    fn one_block_events_are_the_same_blocks() {
        let single = Variant::OneBlock.of(both());
        assert_eq!(single.stores.len(), 8);
        assert_eq!(wires(&single), wires(&both()));
    }
}
