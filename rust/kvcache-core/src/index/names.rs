//! What one view calls its blocks.
//!
//! Where engines agree on wire hashes, a block's first name in the tree is this view's too and costs
//! nothing here. Others are private: a view that mostly uses its own keeps all of them so. A block with
//! several names has them listed. Whether a block is known at all is the tree's business.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::slot_mask::Slot;
use super::trie::{BlockId, Editor, MAX_RUN, PrivateNames, Scrambled};
use crate::model::{ApplyError, WireHash};

/// Private names before it is worth asking whether the engine has hashes of its own.
const SOME: usize = if cfg!(test) { 2 } else { 64 };
/// One in so many private names says that it has.
const ONE_IN: usize = 8;
/// So many names can be made private in a moment.
const FEW: usize = 65_536;

#[derive(Debug)]
pub(super) struct Names {
    /// Names in use.
    count: usize,
    private: PrivateNames,
    /// Whether every name is private.
    all_private: bool,
    /// The only name of each block whose first name in the tree is not one of its names here. When all names are
    /// private, of every block, but only once some block had two.
    only: HashMap<BlockId, WireHash, RandomState>,
    only_is_complete: bool,
    /// All names of blocks that have several; of these, the tree's is private too if `only` had the block before.
    several: HashMap<BlockId, Vec<WireHash>, RandomState>,
}

impl Names {
    /// `all_private` guesses what the engine does.
    pub(super) fn new(all_private: bool) -> Self {
        Self {
            count: 0,
            private: PrivateNames::new(),
            all_private,
            only: HashMap::default(),
            only_is_complete: false,
            several: HashMap::default(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn are_private(&self) -> bool {
        self.all_private
    }

    /// Whether the view calls every block by its first name in the tree, and by no other.
    #[inline]
    pub(super) fn are_first_names(&self) -> bool {
        !self.all_private && self.private.is_empty()
    }

    /// Counts new names that need no place here: first names in the tree, of blocks that were not known.
    #[inline]
    pub(super) fn add_first_names(&mut self, count: usize) {
        self.count += count;
    }

    /// The block of that name.
    pub(super) fn find(&self, editor: &Editor<'_>, slot: Slot, wire: WireHash) -> Option<BlockId> {
        if let Some(block) = self.private.get(wire) {
            return Some(BlockId(block));
        }
        if self.all_private {
            return None;
        }
        editor
            .first_named(wire)
            .find(|block| self.is_by_first_name(*block) && editor.is_known(slot, *block))
    }

    /// Whether a known block is called by its first name in the tree.
    #[inline]
    pub(super) fn is_by_first_name(&self, block: BlockId) -> bool {
        !self.all_private && (self.only.is_empty() || !self.only.contains_key(&block))
    }

    /// Names a block by a name that is not in use. `is_new` says that the view did not know the block.
    pub(super) fn add(
        &mut self,
        editor: &mut Editor<'_>,
        block: BlockId,
        wire: WireHash,
        is_new: bool,
    ) {
        self.count += 1;
        if is_new {
            if !self.all_private {
                editor.name_nameless(block, wire);
            }
            if self.all_private || editor.first_name(block) != Some(wire) {
                self.add_private(wire, block);
                if !self.all_private || self.only_is_complete {
                    self.only.insert(block, wire);
                }
            }
            return;
        }
        self.note_further(editor, block, wire);
        self.add_private(wire, block);
    }

    /// Where all names are private: finds out in one search whether a name is in use, and names the block if it is not.
    /// Says whether it is a new name.
    ///
    /// # Errors
    /// The name of another block; nothing has changed then.
    #[inline]
    pub(super) fn try_add(
        &mut self,
        editor: &Editor<'_>,
        block: BlockId,
        (wire, name): (WireHash, Scrambled),
        is_new: bool,
    ) -> Result<bool, ApplyError> {
        match self.private.insert_touched(name, block.0) {
            Err(other) if other == block.0 => return Ok(false),
            Err(_) => return Err(ApplyError::Conflict(wire)),
            Ok(()) => {}
        }
        self.count += 1;
        if !is_new {
            self.note_further(editor, block, wire);
        } else if self.only_is_complete {
            self.only.insert(block, wire);
        }
        Ok(true)
    }

    /// Undoes the latest successful [`Names::try_add`] of a new name but for those undone.
    pub(super) fn take_back(&mut self, block: BlockId, wire: WireHash, is_new: bool) {
        self.private.remove(wire);
        self.count -= 1;
        if is_new {
            self.only.remove(&block);
        } else if let Some(several) = self.several.get_mut(&block) {
            several.retain(|name| *name != wire);
            if several.len() == 1 {
                self.several.remove(&block);
            }
        }
    }

    /// Looks private names up, of one run's blocks at most, all at once.
    #[inline]
    pub(super) fn touch(&self, wires: &[WireHash]) -> [Scrambled; MAX_RUN as usize] {
        self.private.touch(wires)
    }

    /// Notes that a block that has a name gets another one.
    fn note_further(&mut self, editor: &Editor<'_>, block: BlockId, wire: WireHash) {
        if !self.several.contains_key(&block) {
            let other = self.only_name(editor, block, Some(wire));
            self.several.insert(block, other.into_iter().collect());
        }
        self.several.entry(block).or_default().push(wire);
    }

    /// Adds a name that is not in use.
    fn add_private(&mut self, wire: WireHash, block: BlockId) {
        let added = self.private.insert(wire, block.0);
        debug_assert!(added.is_ok(), "a name in use");
    }

    /// The only name of a known block, but for a `further` one that it is getting.
    fn only_name(
        &mut self,
        editor: &Editor<'_>,
        block: BlockId,
        further: Option<WireHash>,
    ) -> Option<WireHash> {
        if self.all_private && !self.only_is_complete {
            let pairs = self
                .private
                .iter()
                .filter(|(wire, _)| Some(*wire) != further)
                .map(|(wire, block)| (BlockId(block), wire));
            self.only = pairs.collect();
            self.only_is_complete = true;
        }
        let only = self.only.get(&block).copied();
        only.or_else(|| editor.first_name(block))
    }

    /// The names of a known block.
    pub(super) fn of(&mut self, editor: &Editor<'_>, block: BlockId) -> Vec<WireHash> {
        match self.several.get(&block) {
            Some(several) => several.clone(),
            None => self.only_name(editor, block, None).into_iter().collect(),
        }
    }

    /// Takes all names from a block that has `one` for a name. Says how many they were.
    pub(super) fn remove(&mut self, block: BlockId, one: WireHash) -> usize {
        let only = if self.only.is_empty() {
            None
        } else {
            self.only.remove(&block)
        };
        let several = if self.several.is_empty() {
            None
        } else {
            self.several.remove(&block)
        };
        let count = if let Some(several) = several {
            for wire in &several {
                self.private.remove(*wire);
            }
            several.len()
        } else {
            if self.all_private || only.is_some() {
                self.private.remove(only.unwrap_or(one));
            }
            1
        };
        self.count -= count;
        count
    }

    /// Makes all names private if the engine has hashes of its own, and they are few enough. `known` has the known blocks.
    pub(super) fn settle(&mut self, editor: &Editor<'_>, known: impl FnOnce() -> Vec<BlockId>) {
        let has_own = self.only.len() > SOME && self.only.len() * ONE_IN > self.count;
        if self.all_private || !has_own || self.count > FEW || !self.several.is_empty() {
            return;
        }
        for block in known() {
            if !self.only.contains_key(&block)
                && let Some(wire) = editor.first_name(block)
            {
                self.add_private(wire, block);
            }
        }
        self.only = HashMap::default();
        self.all_private = true;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let names = self.several.len() * 2 * size_of::<WireHash>();
        self.private.heap_bytes()
            + self.only.allocation_size()
            + self.several.allocation_size()
            + names
    }
}
