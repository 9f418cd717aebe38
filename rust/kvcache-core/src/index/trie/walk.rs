//! The walk along a prompt, for all streams at once, a run at a time.
//!
//! Waits for nobody. Blocks are hashed only as far as some stream still holds everything before them.

use super::NONE;
use super::children::Spot;
use super::line::{Line, Records, TABLED, halves, ones};
use super::shared_trie::{HashHalves, ROOT, Trie, Visible, common_blocks};
use crate::index::prefetch::{prefetch, prefetch_at};
use crate::index::slot_mask::{Slot, SlotMask};
use crate::index::tally::Tally;
use crate::model::{BlockHash, ContentKey, Tier};

/// What is looked for: the hashes of a prompt's blocks, asked for in order.
pub(in crate::index) trait Prompt {
    /// Full blocks.
    fn len(&self) -> usize;

    /// The hash of the block at `from`, which is below `len`, and of some that follow.
    fn hashes(&mut self, from: usize) -> &[BlockHash];

    /// Asks for what the hashes after the first are made of.
    #[inline]
    fn prefetch(&self) {}

    /// The identity of the prefix that the block ends, when it is known without the walk.
    fn key(&self, block: usize) -> Option<ContentKey>;
}

/// A walk that is to be made.
pub(in crate::index) struct Walk<'a, P> {
    prompt: &'a mut P,
    /// Where the first child is looked for. None for a prompt of no blocks.
    first: Option<Spot>,
}

impl<'a, P: Prompt> Walk<'a, P> {
    /// Asks for the first child's place in the table, so that it comes while something else is done.
    #[inline]
    pub(in crate::index) fn new(trie: &Trie, prompt: &'a mut P) -> Self {
        let children = &trie.visible.children;
        let first = (prompt.len() > 0).then(|| {
            let (half, _) = halves(prompt.hashes(0)[0].0);
            let spot = children.spot(ROOT, half);
            children.prefetch(spot);
            spot
        });
        Self { prompt, first }
    }

    /// Asks for the line that the place leads to now, and for what more hashes are made of if there is one. The walk looks
    /// again, as it has to see what was stored meanwhile.
    #[inline]
    pub(in crate::index) fn prefetch(&self, trie: &Trie) {
        let visible = &trie.visible;
        if let Some(number) = self.first.and_then(|spot| visible.children.first(spot)) {
            visible.lines.get(number).prefetch_both();
            self.prompt.prefetch();
        }
    }

    /// Walks for as long as some slot in `tally` is alive.
    #[inline]
    pub(in crate::index) fn run(self, trie: &Trie, mut tally: Tally<'_>) {
        let Self { prompt, mut first } = self;
        let visible = &trie.visible;
        let mut partial = Vec::new();
        let (mut at, mut next) = (0, Next::Tabled(ROOT));
        // Whether a child of the table is compared by its first hash: only after the tag alone has led to one that is of no use.
        let mut is_exact = false;
        while at < prompt.len() && !tally.alive().is_empty() {
            let line = match next {
                Next::Only(line) => line,
                Next::Tabled(edge) => {
                    let hash = prompt.hashes(at)[0];
                    let spot = first.take();
                    let spot =
                        spot.unwrap_or_else(|| visible.children.spot(edge, halves(hash.0).0));
                    let Some(line) = visible.child(spot, edge, hash, is_exact) else {
                        break;
                    };
                    line
                }
                Next::None => break,
            };
            let below = visible.prefetch_next(line);
            let (base, len) = line.extent();
            let run = visible.prefetch_hashes(base, len);
            partial.clear();
            let holders = Holders::read(visible, line, len, tally.alive(), &mut partial);
            let limit = (holders.reach as usize).min(prompt.len() - at);
            let blocks = matching(run, line, limit, at, prompt);
            if blocks == 0 {
                if matches!(next, Next::Tabled(_)) && !is_exact {
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
            next = below;
        }
        tally.finish();
    }
}

/// Where the run after a run is.
#[derive(Clone, Copy)]
enum Next<'a> {
    /// In the line of the only child.
    Only(&'a Line),
    /// In the table of children, by this edge.
    Tabled(u32),
    None,
}

impl Visible {
    /// Where the run below `line` is. If it is one line, asks for that.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "short, in a short loop")]
    fn prefetch_next(&self, line: &Line) -> Next<'_> {
        match line.child() {
            (NONE, _) => Next::None,
            (TABLED, edge) => Next::Tabled(edge),
            (child, _) => {
                let line = self.lines.get(child);
                prefetch(line);
                Next::Only(line)
            }
        }
    }

    /// The child of `edge`, looked up in the table, that begins with `first`; very probably, unless `is_exact`.
    #[inline]
    fn child(&self, spot: Spot, edge: u32, first: BlockHash, is_exact: bool) -> Option<&Line> {
        self.children.find(spot, |number| {
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

/// How many of the prompt's blocks from `at` on are the first ones of `run`; `limit` at most.
#[inline]
fn matching(
    run: &[HashHalves],
    line: &Line,
    limit: usize,
    at: usize,
    prompt: &mut impl Prompt,
) -> usize {
    if limit == run.len() && prompt.key(at + limit - 1) == Some(line.last_key()) {
        return limit;
    }
    let mut done = 0;
    while done < limit {
        for ahead in (0..16).step_by(4) {
            prefetch_at(run, done + ahead);
        }
        let hashes = prompt.hashes(at + done);
        let hashes = &hashes[..hashes.len().min(limit - done)];
        let matching = common_blocks(&run[done..], hashes);
        done += matching;
        if matching < hashes.len() {
            break;
        }
    }
    done
}
