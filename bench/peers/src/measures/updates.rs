//! What keeping up costs: applying stores and removes, and the bytes that an entry takes.
//!
//! One thread. Each figure is the best of all rounds; an index is built anew in each.

use std::time::Duration;

use super::{Measurement, Rounds};
use crate::contestant::{Contestant, filled, removes, restores, stores, wrong_answers};
use crate::figures::{print, rate};
use crate::heap;
use crate::workload::{Workload, blocks};
use anyhow::Result;
use serde_json::json;

struct UpdatesRounds<C> {
    heap_bytes: usize,
    wrong: usize,
    wrong_after_churn: usize,
    store: Duration,
    remove: Duration,
    contestant: std::marker::PhantomData<C>,
}

/// Begins it.
pub struct Updates;

impl Measurement for Updates {
    fn begin<C: Contestant + 'static>(&self, workload: &Workload) -> Result<Box<dyn Rounds>> {
        let before = heap::bytes();
        let mut index = filled::<C>(workload)?;
        let heap_bytes = heap::bytes().saturating_sub(before);
        let wrong = wrong_answers(&index.reader(), workload);
        index.apply(removes::<C>(workload))?;
        index.apply(restores::<C>(workload))?;
        Ok(Box::new(UpdatesRounds::<C> {
            heap_bytes,
            wrong,
            wrong_after_churn: wrong_answers(&index.reader(), workload),
            store: Duration::MAX,
            remove: Duration::MAX,
            contestant: std::marker::PhantomData,
        }))
    }
}

impl<C: Contestant> Rounds for UpdatesRounds<C> {
    fn round(&mut self, workload: &Workload) -> Result<()> {
        let mut index = C::new(workload)?;
        let (stores, removes) = (stores::<C>(workload), removes::<C>(workload));
        self.store = self.store.min(index.apply(stores)?);
        self.remove = self.remove.min(index.apply(removes)?);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes and entries in memory")]
    fn print(&self, variant: &str, workload: &Workload) {
        let queries = workload.queries.len();
        let stored = json!({
            "blocks_per_s": rate(workload.entries(), self.store),
            "includes_hashing": C::APPLY_HASHES,
            "wrong": self.wrong,
            "queries": queries,
        });
        print::<C>("apply stores", variant, workload, stored);
        let removed = json!({
            "blocks_per_s": rate(blocks(&workload.removes), self.remove),
            "wrong": self.wrong_after_churn,
            "queries": queries,
        });
        print::<C>("apply removes", variant, workload, removed);
        let bytes = self.heap_bytes as f64 / workload.entries() as f64;
        let memory = json!({
            "bytes_per_entry": bytes,
            "wrong": self.wrong,
            "queries": queries,
        });
        print::<C>("memory", variant, workload, memory);
    }
}
