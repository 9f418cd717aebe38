//! A reference for tests: the rules of a view, by linear scans, sharing no code with the index.
//!
//! A block is its token path, so no hash is involved. An event works on a copy of the whole view,
//! which is thrown away when it fails.

use crate::model::{ApplyError, ApplyReport, Batch, Event, Sequence, Stored, Tier, WireHash};

#[derive(Clone, Debug)]
struct Block {
    path: Vec<u32>,
    device: bool,
    host: bool,
    since: u64,
}

#[derive(Clone, Debug)]
pub(super) struct View {
    block_size: usize,
    max: usize,
    clock: u64,
    blocks: Vec<Block>,
    pub(super) names: Vec<(WireHash, Vec<u32>)>,
    pub(super) orphans: Vec<(WireHash, u64)>,
    /// A live clear came: nothing is kept of an older view.
    is_cleared: bool,
}

impl View {
    pub(super) fn new(block_size: usize, max: usize) -> Self {
        let (blocks, names, orphans) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            block_size,
            max,
            // Below is room for what a view keeps of an older one.
            clock: 1 << 32,
            blocks,
            names,
            orphans,
            is_cleared: false,
        }
    }

    pub(super) fn apply(&mut self, batch: &Batch, live: bool) -> Result<ApplyReport, ApplyError> {
        let mut report = ApplyReport::default();
        for event in &batch.events {
            let mut next = self.clone();
            match event {
                Event::Stored(stored) => {
                    if let Err(error) = next.store(batch, stored, live, &mut report) {
                        if matches!(error, ApplyError::Limit(_)) {
                            self.make_room_in_vain(batch, stored);
                        }
                        return Err(error);
                    }
                }
                Event::Removed { wire_hashes, tier } => {
                    next.remove(&batch.wire_hashes[wire_hashes.clone()], *tier, &mut report);
                }
                Event::Cleared => {
                    report.removed += (self.device() + self.host()) as u64;
                    next = Self::new(self.block_size, self.max);
                    next.is_cleared = self.is_cleared || live;
                }
            }
            *self = next;
        }
        Ok(report)
    }

    pub(super) fn device(&self) -> usize {
        self.blocks.iter().filter(|block| block.device).count()
    }

    pub(super) fn host(&self) -> usize {
        self.blocks.iter().filter(|block| block.host).count()
    }

    pub(super) fn same_copies(&self, other: &Self) -> bool {
        let copies = |view: &Self| {
            let resident = view
                .blocks
                .iter()
                .filter(|block| block.device || block.host);
            let mut copies: Vec<_> = resident
                .map(|block| (block.path.clone(), block.device, block.host))
                .collect();
            copies.sort();
            copies
        };
        copies(self) == copies(other)
    }

    /// Device tokens, Host-only tokens.
    pub(super) fn query(&self, tokens: &[u32]) -> (u64, u64) {
        let (mut device, mut host) = (0, 0);
        for end in 1..=tokens.len() / self.block_size {
            let path = &tokens[..end * self.block_size];
            match self.blocks.iter().find(|block| block.path == path) {
                Some(block) if block.device => device += self.block_size as u64,
                Some(block) if block.host => host += self.block_size as u64,
                _ => break,
            }
        }
        (device, host)
    }

    pub(super) fn path(&self, wire: WireHash) -> Option<Vec<u32>> {
        let name = self.names.iter().find(|name| name.0 == wire)?;
        Some(name.1.clone())
    }

    /// Keeps the blocks that only `old` knows, without copies, as the oldest.
    fn keep_known(&mut self, old: &Self) {
        let mut kept: Vec<&Block> = old
            .blocks
            .iter()
            .filter(|block| !self.blocks.iter().any(|known| known.path == block.path))
            .collect();
        kept.sort_by_key(|block| block.path.len());
        // Those without a copy by age, then those that have just lost theirs, by name.
        let mut without = Vec::new();
        let mut lost = Vec::new();
        for Block {
            path,
            device,
            host,
            since,
        } in kept
        {
            let parent = &path[..path.len() - self.block_size];
            let names = old.names.iter().filter(|name| name.1 == *path);
            let free: Vec<_> = names
                .filter(|name| self.path(name.0).is_none() && !self.is_orphan(name.0))
                .cloned()
                .collect();
            let has_parent =
                parent.is_empty() || self.blocks.iter().any(|block| block.path == parent);
            if has_parent && !free.is_empty() {
                if *device || *host {
                    lost.push((free.iter().map(|name| name.0).min(), path.clone()));
                } else {
                    without.push((*since, path.clone()));
                }
                self.names.extend(free);
                self.blocks.push(Block {
                    path: path.clone(),
                    device: false,
                    host: false,
                    since: 0,
                });
            }
        }
        without.sort();
        lost.sort();
        let paths = without.into_iter().map(|(_, path)| path);
        for (since, path) in (0..).zip(paths.chain(lost.into_iter().map(|(_, path)| path))) {
            let block = self.blocks.iter_mut().find(|block| block.path == path);
            block.unwrap().since = since;
        }
        while self.names.len() + self.orphans.len() > self.max {
            assert!(self.evict(&|_| false, &[]));
        }
    }

    fn is_orphan(&self, wire: WireHash) -> bool {
        self.orphans.iter().any(|orphan| orphan.0 == wire)
    }

    fn is_full(&self) -> bool {
        self.names.len() + self.orphans.len() >= self.max
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn store(
        &mut self,
        batch: &Batch,
        stored: &Stored,
        live: bool,
        report: &mut ApplyReport,
    ) -> Result<(), ApplyError> {
        let wires = &batch.wire_hashes[stored.wire_hashes.clone()];
        let tokens = &batch.token_ids[stored.token_ids.clone()];
        if tokens.is_empty() {
            return self.store_tokenless(wires, stored.tier, live, report);
        }
        if tokens.len() != wires.len() * self.block_size {
            return Err(ApplyError::Shape {
                tokens: tokens.len(),
                blocks: wires.len(),
                block_size_tokens: u32::try_from(self.block_size).unwrap(),
            });
        }
        let start = match stored.parent {
            None => Some(Vec::new()),
            Some(parent) => match self.path(parent) {
                Some(path) => Some(path),
                None if self.is_orphan(parent) || !live => None,
                None => return Err(ApplyError::UnknownParent(parent)),
            },
        };
        let Some(start) = start else {
            for &wire in wires {
                self.remember_orphan(wire, wires, stored.parent);
                report.orphaned += 1;
            }
            return Ok(());
        };
        let count = |wire| wires.iter().filter(|other| **other == wire).count();
        if let Some(twice) = wires.iter().copied().filter(|&wire| count(wire) > 1).min() {
            return Err(ApplyError::Conflict(twice));
        }
        let mut paths = vec![start.clone()];
        for (&wire, block) in wires.iter().zip(tokens.chunks(self.block_size)) {
            let path = [paths.last().unwrap(), block].concat();
            if self.path(wire).is_some_and(|named| named != path) {
                return Err(ApplyError::Conflict(wire));
            }
            paths.push(path);
        }
        for (&wire, path) in wires.iter().zip(&paths[1..]) {
            if self.path(wire).is_none() {
                self.orphans.retain(|orphan| orphan.0 != wire);
                while self.is_full() {
                    if !self.evict(&|block| paths.contains(block), wires) {
                        return Err(ApplyError::Limit(self.max));
                    }
                }
                self.names.push((wire, path.clone()));
            }
            if !self.blocks.iter().any(|block| block.path == *path) {
                let since = self.tick();
                self.blocks.push(Block {
                    path: path.clone(),
                    device: false,
                    host: false,
                    since,
                });
            }
            self.add_copy(path, stored.tier, report);
        }
        Ok(())
    }

    /// What an event leaves behind that finds no room although everything was forgotten that may be.
    fn make_room_in_vain(&mut self, batch: &Batch, stored: &Stored) {
        let wires = &batch.wire_hashes[stored.wire_hashes.clone()];
        let tokens = &batch.token_ids[stored.token_ids.clone()];
        let start = stored
            .parent
            .and_then(|parent| self.path(parent))
            .unwrap_or_default();
        let mut paths = vec![start];
        for block in tokens.chunks(self.block_size) {
            paths.push([paths.last().unwrap(), block].concat());
        }
        while self.evict(&|block| paths.contains(block), wires) {}
    }

    fn store_tokenless(
        &mut self,
        wires: &[WireHash],
        tier: Option<Tier>,
        live: bool,
        report: &mut ApplyReport,
    ) -> Result<(), ApplyError> {
        for &wire in wires {
            if live && self.path(wire).is_none() && !self.is_orphan(wire) {
                return Err(ApplyError::UnknownTokenless(wire));
            }
        }
        for &wire in wires {
            if let Some(path) = self.path(wire) {
                self.add_copy(&path, tier, report);
            } else {
                self.remember_orphan(wire, wires, None);
                report.orphaned += 1;
            }
        }
        Ok(())
    }

    fn add_copy(&mut self, path: &[u32], tier: Option<Tier>, report: &mut ApplyReport) {
        let block = self.blocks.iter_mut().find(|block| block.path == path);
        let block = block.unwrap();
        let copy = match tier {
            None => return report.other_tier += 1,
            Some(Tier::Device) => &mut block.device,
            Some(Tier::Host) => &mut block.host,
        };
        if std::mem::replace(copy, true) {
            report.already_stored += 1;
        } else {
            report.stored += 1;
        }
    }

    fn remove(&mut self, wires: &[WireHash], tier: Option<Tier>, report: &mut ApplyReport) {
        for &wire in wires {
            let path = self.path(wire);
            let now = self.tick();
            let block = self
                .blocks
                .iter_mut()
                .find(|block| Some(&block.path) == path.as_ref());
            let had = match (tier, block) {
                (None, _) => {
                    report.other_tier += 1;
                    continue;
                }
                (_, None) => false,
                (Some(tier), Some(block)) => {
                    let copy = match tier {
                        Tier::Device => &mut block.device,
                        Tier::Host => &mut block.host,
                    };
                    let had = std::mem::replace(copy, false);
                    if had && !block.device && !block.host {
                        block.since = now;
                    }
                    had
                }
            };
            *(if had {
                &mut report.removed
            } else {
                &mut report.already_removed
            }) += 1;
        }
    }

    fn remember_orphan(&mut self, wire: WireHash, wires: &[WireHash], parent: Option<WireHash>) {
        if self.path(wire).is_some() || self.is_orphan(wire) {
            return;
        }
        let event: Vec<WireHash> = wires.iter().copied().chain(parent).collect();
        let named: Vec<_> = event.iter().filter_map(|wire| self.path(*wire)).collect();
        while self.is_full() {
            if !self.evict(&|block| named.contains(block), &event) {
                return;
            }
        }
        let since = self.tick();
        self.orphans.push((wire, since));
    }

    /// Forgets the one entry that may go and has been without a copy longest.
    fn evict(&mut self, keep_block: &dyn Fn(&Vec<u32>) -> bool, keep_orphans: &[WireHash]) -> bool {
        let has_child = |path: &[u32]| {
            let is_child = |block: &Block| {
                block.path.len() == path.len() + self.block_size && block.path.starts_with(path)
            };
            self.blocks.iter().any(is_child)
        };
        let block = self
            .blocks
            .iter()
            .filter(|block| !block.device && !block.host && !has_child(&block.path))
            .filter(|block| !keep_block(&block.path))
            .min_by_key(|block| block.since)
            .cloned();
        let orphan = self
            .orphans
            .iter()
            .filter(|orphan| !keep_orphans.contains(&orphan.0))
            .min_by_key(|orphan| orphan.1)
            .copied();
        match (block, orphan) {
            (None, None) => return false,
            (Some(block), orphan) if orphan.is_none_or(|orphan| block.since < orphan.1) => {
                self.blocks.retain(|other| other.path != block.path);
                self.names.retain(|name| name.1 != block.path);
            }
            (_, Some(orphan)) => self.orphans.retain(|other| other.0 != orphan.0),
            (Some(_), None) => unreachable!("the guard takes it"),
        }
        true
    }
}

/// A stream of the reference index: a view that queries see, or the reason why not.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) view: Option<View>,
    pub(super) sequence: Option<Sequence>,
    pub(super) error: String,
}

impl Stream {
    pub(super) fn apply(
        &mut self,
        batch: &Batch,
        sequence: Option<Sequence>,
    ) -> Result<ApplyReport, ApplyError> {
        let Some(view) = &mut self.view else {
            return Ok(ApplyReport::default());
        };
        let report = view.apply(batch, true)?;
        self.sequence = sequence.or(self.sequence);
        Ok(report)
    }

    /// Whether the copies are others than before.
    pub(super) fn publish(&mut self, mut draft: View, sequence: Option<Sequence>) -> bool {
        if let Some(view) = &self.view
            && !draft.is_cleared
        {
            draft.keep_known(view);
        }
        let same = self
            .view
            .as_ref()
            .is_some_and(|view| view.same_copies(&draft));
        self.view = Some(draft);
        self.sequence = sequence;
        self.error.clear();
        !same
    }

    pub(super) fn unpublish(&mut self, error: &str) {
        self.view = None;
        error.clone_into(&mut self.error);
    }
}
