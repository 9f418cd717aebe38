//! Which entries of a ledger go when the limit is reached.
//!
//! A block without a copy from which no known block descends, or an orphan: whichever has been
//! without a copy longest (spec: content keys). A plan changes nothing, so that an event that finds
//! no room leaves the ledger as it was.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use foldhash::fast::RandomState;

use super::arena::{Arena, BlockId};
use crate::model::WireHash;

/// An entry that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evictable {
    Block(BlockId),
    Orphan(WireHash),
}

/// Entries that may go, by the stamp since when they could have.
pub(super) type Evictables = BTreeMap<u64, Evictable>;

/// What the event that needs room is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protected<'a> {
    /// The last known block of the event's chain, which holds on to those before it.
    pub(super) block: Option<BlockId>,
    /// The event's wire hashes, sorted.
    pub(super) wires: &'a [WireHash],
    /// The event's parent.
    pub(super) parent: Option<WireHash>,
}

impl Protected<'_> {
    pub(super) fn has_wire(&self, wire: WireHash) -> bool {
        self.parent == Some(wire) || self.wires.binary_search(&wire).is_ok()
    }
}

/// Entries to take out, in order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) victims: Vec<Evictable>,
    /// Names and orphans that the victims free.
    pub(super) freed: usize,
}

/// Finds victims until `needed` names and orphans would be free, or nothing more may go.
///
/// `names` counts a block's wire hashes, and is 0 for one that must stay.
pub(super) fn plan(
    needed: usize,
    evictables: &Evictables,
    arena: &Arena,
    names: impl Fn(Evictable) -> usize,
) -> Plan {
    let mut plan = Plan::default();
    // Children of a block that the plan takes out, and blocks that thereby lose their last.
    let mut children_taken: HashMap<BlockId, u32, RandomState> = HashMap::default();
    let mut bereft = BinaryHeap::new();
    let mut oldest = evictables
        .iter()
        .map(|(&since, &entry)| (since, entry))
        .peekable();
    while plan.freed < needed {
        let bereft_is_older = match (bereft.peek(), oldest.peek()) {
            (Some(Reverse(bereft)), Some(oldest)) => bereft < oldest,
            (bereft, _) => bereft.is_some(),
        };
        let next = if bereft_is_older {
            bereft.pop().map(|Reverse(entry)| entry)
        } else {
            oldest.next()
        };
        let Some((_, victim)) = next else { break };
        let freed = names(victim);
        if freed == 0 {
            continue;
        }
        plan.victims.push(victim);
        plan.freed += freed;
        let Evictable::Block(id) = victim else {
            continue;
        };
        let Some(parent_id) = arena.get(id).parent else {
            continue;
        };
        let parent = arena.get(parent_id);
        let taken = children_taken.entry(parent_id).or_default();
        *taken += 1;
        if *taken == parent.children && parent.tiers.is_empty() {
            bereft.push(Reverse((parent.since, Evictable::Block(parent_id))));
        }
    }
    plan
}
