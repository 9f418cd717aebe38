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

/// Asks for what a walk reads first, so that it comes while something else is done.
#[inline]
pub(in crate::index) fn touch(trie: &Trie, prompt: &mut impl Prompt) {
    if prompt.len() > 0 {
        let first = prompt.hashes(0)[0];
        trie.visible.children.touch(ROOT, halves(first.0).0);
    }
}

/// Walks for as long as some slot in `tally` is alive.
#[inline]
pub(in crate::index) fn walk(trie: &Trie, prompt: &mut impl Prompt, mut tally: Tally<'_>) {
    let visible = &trie.visible;
    let mut partial = Vec::new();
    let (mut at, mut child, mut edge) = (0, TABLED, ROOT);
    // Whether a child of the table is compared by its first hash: only after the tag alone has led to one that is of no use.
    let mut is_exact = false;
    while child != NONE && at < prompt.len() && !tally.alive().is_empty() {
        let line = if child == TABLED {
            let first = prompt.hashes(at)[0];
            visible.child(edge, first, is_exact)
        } else {
            Some(visible.lines.get(child))
        };
        let Some(line) = line else { break };
        let (_, len) = line.extent();
        partial.clear();
        let holders = Holders::read(visible, line, len, tally.alive(), &mut partial);
        let limit = (holders.reach as usize).min(prompt.len() - at);
        let blocks = matching(visible, line, limit, at, prompt);
        if blocks == 0 {
            if child == TABLED && !is_exact {
                is_exact = true;
                continue;
            }
            break;
        }
        is_exact = false;
        holders.count(blocks, &partial, &mut tally);
        at += blocks;
        if blocks < len as usize {
            break;
        }
        (child, edge) = line.child();
    }
    tally.finish();
}

impl Visible {
    /// The child of `edge`, looked up in the table, that begins with `first`; very probably, unless `is_exact`.
    #[inline]
    fn child(&self, edge: u32, first: BlockHash, is_exact: bool) -> Option<&Line> {
        let (half, _) = halves(first.0);
        self.children.find(edge, half, |number| {
            let line = self.lines.get(number);
            let begins =
                line.parent_edge() == edge && (!is_exact || self.is_block(line.extent().0, first));
            begins.then_some(line)
        })
    }
}

/// A slot that holds a run in part, or in parts of both tiers: Device copies, Host copies.
struct Partial {
    slot: Slot,
    device: u64,
    host: u64,
}

/// Who holds what of one run, read once.
struct Holders {
    device: SlotMask,
    host: SlotMask,
    /// The most blocks from the run's start that somebody alive holds.
    reach: u32,
}

impl Holders {
    /// Says in `partial`, which is empty, who of those alive holds the run in part, or in parts of both tiers.
    #[inline]
    fn read(
        visible: &Visible,
        line: &Line,
        len: u32,
        alive: SlotMask,
        partial: &mut Vec<Partial>,
    ) -> Self {
        let device = line.mask(Tier::Device);
        if alive.and_not(device).is_empty() {
            let host = SlotMask::EMPTY;
            let reach = len;
            return Self {
                device,
                host,
                reach,
            };
        }
        Self::read_all(visible, line, len, alive, partial)
    }

    /// The same where some slot alive does not hold the whole run on Device.
    fn read_all(
        visible: &Visible,
        line: &Line,
        len: u32,
        alive: SlotMask,
        partial: &mut Vec<Partial>,
    ) -> Self {
        // Masks first: who loses the whole run meanwhile has a record by then. Host before Device, and Host again for those
        // who seem to have neither: a copy that moves between the two is stored before it is removed, in either direction.
        let mut host = line.mask(Tier::Host);
        let device = line.mask(Tier::Device);
        if !alive.and_not(device.or(host)).is_empty() {
            host = host.or(line.mask(Tier::Host));
        }
        let whole = alive.and(device.or(host));
        let mut reach = if whole.is_empty() { 0 } else { len };
        let rest = alive.and_not(device);
        if rest.is_empty() {
            return Self {
                device,
                host,
                reach,
            };
        }
        for (slot, record) in Records::new(&visible.records, line) {
            if rest.contains(slot) {
                let (device, mut copies) = record.both_copies();
                if host.contains(slot) {
                    copies = ones(len);
                }
                reach = reach.max((device | copies).trailing_ones());
                partial.push(Partial {
                    slot,
                    device,
                    host: copies,
                });
            }
        }
        let reach = reach.min(len);
        Self {
            device,
            host,
            reach,
        }
    }

    /// Counts the run's first `blocks`, which the prompt has.
    #[inline]
    fn count(&self, blocks: usize, partial: &[Partial], tally: &mut Tally<'_>) {
        #[expect(clippy::cast_possible_truncation, reason = "within one run")]
        let blocks = blocks as u32;
        if partial.is_empty() {
            tally.run(blocks, self.device, self.host);
        } else {
            self.count_partial(blocks, partial, tally);
        }
    }

    fn count_partial(&self, blocks: u32, partial: &[Partial], tally: &mut Tally<'_>) {
        let mut whole = tally.alive();
        for &Partial { slot, device, host } in partial {
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
