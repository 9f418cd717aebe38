//! Storing blocks: with their tokens' hashes, or as further copies of known ones.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::super::trie::{BlockId, Claim, Editor, Path, ones};
use super::room::Protected;
use super::{Ledger, Origin, Scratch};
use crate::model::{ApplyError, ApplyReport, BlockHash, Tier, WireHash};

/// How an event's blocks get their names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Every block is called by its first name in the tree, and no orphan is concerned: they are counted.
    Plain,
    /// All names are private, and are given before anything else changes.
    Private,
    OneByOne,
}

/// What an event's names come to.
struct Naming {
    /// Names and orphans that it adds; found out later when all names are private.
    new_entries: usize,
    how: How,
}

/// A name that was given: to which block, and whether the view did not know that before.
type Named = (BlockId, WireHash, bool);

impl Ledger {
    /// Stores consecutive blocks after `parent`; one hash a wire hash.
    ///
    /// # Errors
    /// An unknown parent (live), a conflict, the limit.
    pub(in super::super) fn store(
        &mut self,
        editor: &mut Editor<'_>,
        parent: Option<WireHash>,
        blocks: (&[WireHash], &[BlockHash]),
        tier: Option<Tier>,
        origin: Origin,
    ) -> Result<ApplyReport, ApplyError> {
        let (wires, hashes) = blocks;
        let mut below = None;
        if let Some(wire) = parent {
            below = self.names.find(editor, self.slot, wire);
            if below.is_none() {
                if origin == Origin::Live && !self.kept.is_orphan(wire) {
                    return Err(ApplyError::UnknownParent(wire));
                }
                self.remember_orphans(editor, wires, parent);
                return Ok(ApplyReport {
                    orphaned: wires.len() as u64,
                    ..ApplyReport::default()
                });
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        editor.follow(below, hashes, &mut scratch.path);
        let report = self.store_along(editor, (parent, below), blocks, tier, &mut scratch);
        self.scratch = scratch;
        self.trim_scratch();
        self.names.settle(editor, || editor.known_blocks(self.slot));
        report
    }

    fn store_along(
        &mut self,
        editor: &mut Editor<'_>,
        (parent, below): (Option<WireHash>, Option<BlockId>),
        (wires, hashes): (&[WireHash], &[BlockHash]),
        tier: Option<Tier>,
        Scratch { path, claim }: &mut Scratch,
    ) -> Result<ApplyReport, ApplyError> {
        let naming = self.check_names(editor, wires, path)?;
        let mut named = Vec::new();
        let ready = self
            .claim(editor, wires, path, claim)
            .and_then(|()| match naming.how {
                How::Private => self.name_privately(editor, wires, (path, claim), &mut named),
                How::Plain | How::OneByOne => Ok(self.missing_room(naming.new_entries)),
            })
            .and_then(|missing| {
                let protected = Protected {
                    parent,
                    below,
                    wires,
                    path: Some(path),
                };
                if self.make_room(editor, missing, &protected) {
                    Ok(())
                } else {
                    Err(ApplyError::Limit(self.max_blocks))
                }
            });
        if let Err(error) = ready {
            for (block, wire, is_new) in named.into_iter().rev() {
                self.names.take_back(block, wire, is_new);
            }
            editor.give_up(claim);
            return Err(error);
        }
        let mut report = ApplyReport::default();
        let mut rest = wires;
        for piece in &path.pieces {
            let (here, later) = rest.split_at(piece.len as usize);
            self.store_known(
                editor,
                BlockId(piece.base),
                here,
                tier,
                naming.how,
                &mut report,
            );
            rest = later;
        }
        if !rest.is_empty() {
            self.build(
                editor,
                (path, claim),
                (rest, &hashes[path.len..]),
                tier,
                naming.how,
                &mut report,
            );
        }
        Ok(report)
    }

    /// Finds conflicts among names, but for those with other blocks' first names.
    fn check_names(
        &self,
        editor: &Editor<'_>,
        wires: &[WireHash],
        path: &Path,
    ) -> Result<Naming, ApplyError> {
        let mut naming = Naming {
            new_entries: wires.len() - path.len,
            how: How::Plain,
        };
        if self.names.are_private() {
            naming.how = How::Private;
            return Ok(naming);
        }
        let is_plain_view = self.names.are_first_names() && self.kept.orphans() == 0;
        let mut rest = wires;
        for piece in &path.pieces {
            let (here, later) = rest.split_at(piece.len as usize);
            if !is_plain_view || !editor.are_first_names(*piece, here) {
                return self.check_each_name(editor, wires, path);
            }
            naming.new_entries += editor.unknown(self.slot, *piece);
            rest = later;
        }
        if !is_plain_view {
            return self.check_each_name(editor, wires, path);
        }
        Ok(naming)
    }

    fn check_each_name(
        &self,
        editor: &Editor<'_>,
        wires: &[WireHash],
        path: &Path,
    ) -> Result<Naming, ApplyError> {
        let mut naming = Naming {
            new_entries: 0,
            how: How::OneByOne,
        };
        let mut seen: HashSet<WireHash, RandomState> = HashSet::default();
        let known = path
            .pieces
            .iter()
            .flat_map(|piece| piece.base..piece.base + piece.len)
            .map(|id| Some(BlockId(id)));
        for (&wire, block) in wires.iter().zip(known.chain(std::iter::repeat(None))) {
            let named = self.names.find(editor, self.slot, wire);
            if named.is_some() && named != block || !seen.insert(wire) {
                return Err(ApplyError::Conflict(wire));
            }
            // An orphan's place becomes the name's.
            naming.new_entries += usize::from(named.is_none() && !self.kept.is_orphan(wire));
        }
        Ok(naming)
    }

    /// Names all blocks of an event, and says for how many of them there is no room. `named` has what was done, also when
    /// that fails.
    fn name_privately(
        &mut self,
        editor: &Editor<'_>,
        wires: &[WireHash],
        (path, claim): (&Path, &Claim),
        named: &mut Vec<Named>,
    ) -> Result<usize, ApplyError> {
        let mut healed = 0;
        let mut rest = wires;
        let mut name = |first: u32, here: &[WireHash], known: usize| {
            let scrambled = self.names.touch(here);
            let pairs = here.iter().copied().zip(scrambled);
            for (offset, (id, (wire, name))) in (first..).zip(pairs).enumerate() {
                let is_new = offset >= known;
                if self
                    .names
                    .try_add(editor, BlockId(id), (wire, name), is_new)?
                {
                    named.push((BlockId(id), wire, is_new));
                    healed += usize::from(self.kept.is_orphan(wire));
                }
            }
            Ok(())
        };
        let claimed = claim.runs().map(|run| (run, 0));
        let pieces = path.pieces.iter().map(|piece| {
            let known = piece.len as usize - editor.unknown(self.slot, *piece);
            (*piece, known)
        });
        for (piece, known) in pieces.chain(claimed) {
            let (here, later) = rest.split_at(piece.len as usize);
            name(piece.base, here, known)?;
            rest = later;
        }
        // The names are counted by now, and the orphans among them twice.
        Ok(self.missing_room(0).saturating_sub(healed))
    }

    /// Claims ids for the blocks beyond the path.
    fn claim(
        &self,
        editor: &mut Editor<'_>,
        wires: &[WireHash],
        path: &Path,
        claim: &mut Claim,
    ) -> Result<(), ApplyError> {
        let is_taken = |editor: &Editor<'_>, other: BlockId, wire: WireHash| {
            let is_ours = self.names.is_by_first_name(other) && editor.is_known(self.slot, other);
            let is_in_event = || {
                path.position(other)
                    .is_some_and(|position| wires[position] == wire)
            };
            is_ours || is_in_event()
        };
        editor
            .claim(
                (self.slot, path.end),
                &wires[path.len..],
                self.names.are_private(),
                claim,
                is_taken,
            )
            .map_err(|conflict| match conflict {
                Some(wire) => ApplyError::Conflict(wire),
                None => ApplyError::Limit(self.max_blocks),
            })
    }

    /// Stores consecutive blocks that the tree has, known to this view or not.
    fn store_known(
        &mut self,
        editor: &mut Editor<'_>,
        first: BlockId,
        wires: &[WireHash],
        tier: Option<Tier>,
        how: How,
        report: &mut ApplyReport,
    ) {
        let mut first = first;
        let mut rest = wires;
        while !rest.is_empty() {
            let run = editor.run_left(first);
            let count = run.min(u32::try_from(rest.len()).unwrap_or(run));
            let (here, later) = rest.split_at(count as usize);
            let unknown = editor.unknown_in_run(self.slot, first, count);
            match how {
                How::Plain => self.names.add_first_names(unknown as usize),
                How::Private => self.heal(here),
                How::OneByOne => self.name_each(editor, first, here, count - unknown),
            }
            if unknown > 0 && self.kept.has_passed() {
                let new = BlockId(first.0 + count - unknown);
                if let Some(parent) = editor.parent(new) {
                    self.kept.gains_child(parent);
                }
            }
            self.copy(editor, first, here, tier, unknown, report);
            first = BlockId(first.0 + count);
            rest = later;
        }
    }

    /// Forgets that these were orphans.
    fn heal(&mut self, wires: &[WireHash]) {
        if self.kept.orphans() > 0 {
            for wire in wires {
                self.kept.forget_orphan(*wire);
            }
        }
    }

    /// Names blocks of one run; the first `known` are known.
    fn name_each(
        &mut self,
        editor: &mut Editor<'_>,
        first: BlockId,
        wires: &[WireHash],
        known: u32,
    ) {
        for (offset, &wire) in (0..).zip(wires) {
            let block = BlockId(first.0 + offset);
            if self.names.find(editor, self.slot, wire).is_none() {
                self.names.add(editor, block, wire, offset >= known);
            }
            self.kept.forget_orphan(wire);
        }
    }

    /// Adds copies of blocks of one run, of which the last `unknown` become known.
    fn copy(
        &mut self,
        editor: &mut Editor<'_>,
        first: BlockId,
        wires: &[WireHash],
        tier: Option<Tier>,
        unknown: u32,
        report: &mut ApplyReport,
    ) {
        #[expect(clippy::cast_possible_truncation, reason = "within one run")]
        let count = wires.len() as u32;
        let known = count - unknown;
        let marked = editor.mark(self.slot, first, count, tier);
        let Some(tier) = tier else {
            report.other_tier += u64::from(count);
            for offset in known..count {
                self.kept
                    .add(BlockId(first.0 + offset), wires[offset as usize]);
            }
            return;
        };
        self.blocks[tier as usize] += marked.new_copies as usize;
        report.stored += u64::from(marked.new_copies);
        report.already_stored += u64::from(count - marked.new_copies);
        let mut bare = marked.bare & ones(known);
        while bare != 0 {
            self.kept.take_out(BlockId(first.0 + bare.trailing_zeros()));
            bare &= bare - 1;
        }
    }

    fn build(
        &mut self,
        editor: &mut Editor<'_>,
        (path, claim): (&Path, &Claim),
        (wires, hashes): (&[WireHash], &[BlockHash]),
        tier: Option<Tier>,
        how: How,
        report: &mut ApplyReport,
    ) {
        editor.build(self.slot, path.end, claim, hashes, tier);
        if let Some(end) = path.end {
            self.kept.gains_child(end);
        }
        match how {
            How::Plain => self.names.add_first_names(wires.len()),
            How::Private => self.heal(wires),
            How::OneByOne => {
                for (&wire, block) in wires.iter().zip(claim.blocks()) {
                    self.names.add(editor, block, wire, true);
                }
                self.heal(wires);
            }
        }
        if let Some(tier) = tier {
            self.blocks[tier as usize] += wires.len();
            report.stored += wires.len() as u64;
        } else {
            report.other_tier += wires.len() as u64;
            for (&wire, block) in wires.iter().zip(claim.blocks()) {
                self.kept.add(block, wire);
            }
        }
    }

    /// Stores copies of blocks known before.
    ///
    /// # Errors
    /// A block that is not known (live); nothing has changed then.
    pub(in super::super) fn store_tokenless(
        &mut self,
        editor: &mut Editor<'_>,
        wires: &[WireHash],
        tier: Option<Tier>,
        origin: Origin,
    ) -> Result<ApplyReport, ApplyError> {
        let blocks: Vec<Option<BlockId>> = wires
            .iter()
            .map(|wire| self.names.find(editor, self.slot, *wire))
            .collect();
        let is_unknown = |(wire, block): &(&WireHash, &Option<BlockId>)| {
            block.is_none() && !self.kept.is_orphan(**wire)
        };
        if let Some((&unknown, _)) = wires.iter().zip(&blocks).find(is_unknown) {
            if origin == Origin::Live {
                return Err(ApplyError::UnknownTokenless(unknown));
            }
            self.remember_orphans(editor, wires, None);
        }
        let mut report = ApplyReport::default();
        for (wire, block) in wires.iter().zip(blocks) {
            match block {
                Some(block) => {
                    self.copy(
                        editor,
                        block,
                        std::slice::from_ref(wire),
                        tier,
                        0,
                        &mut report,
                    );
                }
                None => report.orphaned += 1,
            }
        }
        Ok(report)
    }
}
