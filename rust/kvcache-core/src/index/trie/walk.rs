//! The walk along a prompt, for all streams at once, a run at a time.
//!
//! Waits for nobody. Blocks are hashed only as far as some stream still holds everything before them.

use super::NONE;
use super::line::{Line, Records, TABLED, halves, ones};
use super::shared_trie::{ROOT, Trie, Visible};
use crate::index::slot_mask::{Slot, SlotMask};
use crate::index::tally::Tally;
use crate::model::{BlockHash, ContentKey, Tier};

/// What is looked for: the hashes of a prompt's blocks, asked for in order.
pub(in crate::index) trait Prompt {
    /// Full blocks.
    fn len(&self) -> usize;

    /// The hash of the block at `from`, which is below `len`, and of some that follow.
    fn hashes(&mut self, from: usize) -> &[BlockHash];

    /// The identity of the prefix that the block ends, when it is known without the walk.
    fn key(&self, block: usize) -> Option<ContentKey>;
}

/// Walks for as long as some slot in `tally` is alive.
pub(in crate::index) fn walk(trie: &Trie, prompt: &mut impl Prompt, mut tally: Tally<'_>) {
    let visible = &trie.visible;
    let mut holders = Holders::default();
    let (mut at, mut child, mut edge) = (0, TABLED, ROOT);
    while child != NONE && at < prompt.len() && !tally.alive().is_empty() {
        let first = halves(prompt.hashes(at)[0].0).0;
        // Says how many blocks of a run the prompt has and somebody alive holds.
        let mut visit = |line: &Line| {
            let (_, len) = line.extent();
            let reach = holders.read(visible, line, len, tally.alive());
            let limit = (reach as usize).min(prompt.len() - at);
            matching(visible, line, limit, at, prompt)
        };
        let step = if child == TABLED {
            visible.children.find(edge, first, |number| {
                let line = visible.lines.get(number);
                if line.parent_edge() != edge || line.first_hash() != first {
                    return None;
                }
                let blocks = visit(line);
                (blocks > 0).then_some((line, blocks))
            })
        } else {
            let line = visible.lines.get(child);
            Some((line, visit(line)))
        };
        let Some((line, blocks)) = step.filter(|(_, blocks)| *blocks > 0) else {
            break;
        };
        holders.count(blocks, &mut tally);
        at += blocks;
        if blocks < line.extent().1 as usize {
            break;
        }
        (child, edge) = line.child();
    }
    tally.finish();
}

/// A slot that holds a run in part, or in parts of both tiers: Device copies, Host copies.
struct Partial {
    slot: Slot,
    device: u64,
    host: u64,
}

/// Who holds what of one run, read once.
#[derive(Default)]
struct Holders {
    device: SlotMask,
    host: SlotMask,
    /// Those that hold it in part, or in parts of both tiers.
    partial: Vec<Partial>,
}

impl Holders {
    /// Says also how many blocks of the run somebody alive holds from its start.
    #[inline]
    fn read(&mut self, visible: &Visible, line: &Line, len: u32, alive: SlotMask) -> u32 {
        self.partial.clear();
        // Masks first: who loses the whole run meanwhile has a record by then. Host before Device, and Host again for those
        // who seem to have neither: a copy that moves between the two is stored before it is removed, in either direction.
        self.host = line.mask(Tier::Host);
        self.device = line.mask(Tier::Device);
        if !alive.and_not(self.device.or(self.host)).is_empty() {
            self.host = self.host.or(line.mask(Tier::Host));
        }
        let whole = alive.and(self.device.or(self.host));
        let mut reach = if whole.is_empty() { 0 } else { len };
        let rest = alive.and_not(self.device);
        if rest.is_empty() || line.records() == NONE {
            return reach;
        }
        for (slot, record) in Records::new(&visible.records, line) {
            if rest.contains(slot) {
                let (device, mut host) = record.both_copies();
                if self.host.contains(slot) {
                    host = ones(len);
                }
                reach = reach.max((device | host).trailing_ones());
                self.partial.push(Partial { slot, device, host });
            }
        }
        reach.min(len)
    }

    /// Counts the run's first `blocks`, which the prompt has.
    #[inline]
    fn count(&self, blocks: usize, tally: &mut Tally<'_>) {
        #[expect(clippy::cast_possible_truncation, reason = "within one run")]
        let blocks = blocks as u32;
        if self.partial.is_empty() {
            tally.run(blocks, self.device, self.host);
            return;
        }
        let mut whole = tally.alive();
        for &Partial { slot, device, host } in &self.partial {
            let held = (device | host).trailing_ones().min(blocks);
            let host_only = (host & !device & ones(held)).count_ones();
            tally.part(slot, held, host_only, held == blocks);
            whole.remove(slot);
        }
        tally.run_beside(blocks, whole, self.device, self.host);
    }
}

/// How many of the prompt's blocks from `at` on are the run's first ones; `limit` at most.
#[inline]
fn matching(
    visible: &Visible,
    line: &Line,
    limit: usize,
    at: usize,
    prompt: &mut impl Prompt,
) -> usize {
    let (base, len) = line.extent();
    if limit == len as usize && prompt.key(at + limit - 1) == Some(line.last_key()) {
        return limit;
    }
    let mut done = 0;
    while done < limit {
        let hashes = prompt.hashes(at + done);
        let hashes = &hashes[..hashes.len().min(limit - done)];
        #[expect(clippy::cast_possible_truncation, reason = "within one run")]
        let first = base + done as u32;
        let matching = visible.matching(first, hashes.len(), hashes);
        done += matching;
        if matching < hashes.len() {
            break;
        }
    }
    done
}
