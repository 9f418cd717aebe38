//! Invents events that mostly make sense, and prompts that begin alike.

use fastrand::Rng;

use super::super::super::naive;
use super::super::Events;
use crate::model::{Batch, Tier, WireHash};

/// What a family of histories is like.
#[derive(Clone, Copy)]
pub(super) struct Family {
    pub(super) histories: u64,
    pub(super) steps: u64,
    pub(super) max_blocks: (usize, usize),
    /// Most blocks in one event, and in a random prompt.
    pub(super) chain: usize,
    pub(super) wires: (u64, u64),
    /// Streams that name blocks in a way of their own; the others agree.
    pub(super) own_ways: usize,
}

/// Few blocks, so that everything collides with everything.
pub(super) const CROWDED: Family = Family {
    histories: 240,
    steps: 400,
    max_blocks: (3, 14),
    chain: 4,
    wires: (4, 16),
    own_ways: 0,
};

/// Chains of several runs, which are split, cut and grown.
pub(super) const LONG: Family = Family {
    histories: 10,
    steps: 120,
    max_blocks: (80, 300),
    chain: 150,
    wires: (1 << 20, 1 << 40),
    own_ways: 0,
};

/// A stream with private names beside others that share theirs.
pub(super) const MIXED: Family = Family {
    histories: 40,
    steps: 300,
    max_blocks: (8, 60),
    chain: 12,
    wires: (40, 1 << 20),
    own_ways: 1,
};

/// Invents what happens in one history, from its seed alone.
pub(super) struct Inventor {
    pub(super) rng: Rng,
    pub(super) family: Family,
    pub(super) block_size: usize,
    wires: u64,
    tokens: u32,
    /// Prompts that begin alike.
    pub(super) stories: Vec<Vec<u32>>,
}

impl Inventor {
    pub(super) fn new(mut rng: Rng, family: Family, block_size: usize) -> Self {
        let tokens = rng.u32(2..=3);
        let length = family.chain * 3 / 2 * block_size;
        let mut stories = vec![(0..length).map(|_| rng.u32(..tokens)).collect::<Vec<u32>>()];
        for _ in 0..3 {
            let mut story = stories[rng.usize(..stories.len())].clone();
            let from = rng.usize(..length);
            story[from..]
                .iter_mut()
                .for_each(|token| *token = rng.u32(..tokens));
            stories.push(story);
        }
        Self {
            wires: rng.u64(family.wires.0..=family.wires.1),
            rng,
            family,
            block_size,
            tokens,
            stories,
        }
    }

    /// Any prompt, a little longer than any event.
    pub(super) fn prompt(&mut self) -> Vec<u32> {
        let length = self.rng.usize(..=(self.family.chain + 2) * self.block_size);
        (0..length).map(|_| self.rng.u32(..self.tokens)).collect()
    }

    /// A few events that mostly make sense for `view`.
    pub(super) fn batch(&mut self, stream: usize, view: Option<&naive::View>) -> Batch {
        let mut events = Events::default();
        for _ in 0..self.rng.usize(1..=3) {
            let tier = [Some(Tier::Device), Some(Tier::Host), None]
                [self.rng.usize(..9) % 3 * self.rng.usize(..2)];
            let tier = if self.rng.u8(..4) == 0 {
                Some(Tier::Host)
            } else {
                tier
            };
            events = match self.rng.u8(..20) {
                0 if self.rng.u8(..3) == 0 => events.clear(),
                1..=2 => {
                    let wires = if self.rng.bool() {
                        self.some_wires(view, 1..=3)
                    } else {
                        self.neighbours(view)
                    };
                    events.push_store(None, &wires, &[], tier);
                    events
                }
                3..=9 => {
                    let wires = if self.rng.bool() {
                        self.some_wires(view, 1..=4)
                    } else {
                        self.neighbours(view)
                    };
                    events.remove(&wires, tier)
                }
                _ => self.store(events, stream, view, tier),
            };
        }
        events.0
    }

    fn store(
        &mut self,
        mut events: Events,
        stream: usize,
        view: Option<&naive::View>,
        tier: Option<Tier>,
    ) -> Events {
        let parent = (self.rng.u8(..4) > 0).then(|| self.some_wires(view, 1..=1)[0]);
        let count = self.rng.usize(1..=self.family.chain);
        let mut tokens: Vec<u32> = (0..count * self.block_size)
            .map(|_| self.rng.u32(..self.tokens))
            .collect();
        let known = parent.and_then(|parent| view.and_then(|view| view.path(WireHash(parent))));
        let mut path = known.unwrap_or_default();
        if self.rng.u8(..4) > 0 {
            self.tell(path.len(), &mut tokens);
        }
        let mut wires = Vec::new();
        for block in tokens.chunks(self.block_size) {
            path.extend_from_slice(block);
            // Mostly the engine's own name of the path, sometimes any.
            let named = view.and_then(|view| view.names.iter().find(|name| name.1 == path));
            let way = if stream < self.family.own_ways {
                1 << 30
            } else {
                0
            };
            let digest = path.iter().fold(way + path.len() as u64, |sum, token| {
                sum.wrapping_mul(5).wrapping_add(u64::from(*token))
            });
            wires.push(match (self.rng.u8(..8), named) {
                (0, _) => self.rng.u64(..self.wires),
                (1..=6, Some((wire, _))) => wire.0,
                _ => digest % self.wires,
            });
        }
        if self.rng.u8(..40) == 0 {
            tokens.push(0);
        }
        events.push_store(parent, &wires, &tokens, tier);
        events
    }

    /// Makes tokens continue one of the stories that all streams share, mostly to the end.
    fn tell(&mut self, from: usize, tokens: &mut [u32]) {
        let story = &self.stories[self.rng.usize(..self.stories.len())];
        let told = if self.rng.bool() {
            tokens.len()
        } else {
            self.rng.usize(..=tokens.len())
        };
        for (token, story) in tokens[..told].iter_mut().zip(story.iter().skip(from)) {
            *token = *story;
        }
    }

    /// Names that were given one after the other.
    fn neighbours(&mut self, view: Option<&naive::View>) -> Vec<u64> {
        let names = view.map_or(&[][..], |view| &view.names);
        let from = self.rng.usize(..=names.len());
        let count = self.rng.usize(..=self.family.chain);
        let mut wires: Vec<u64> = names[from..]
            .iter()
            .take(count)
            .map(|name| name.0.0)
            .collect();
        if self.rng.bool() {
            wires.reverse();
        }
        wires
    }

    fn some_wires(
        &mut self,
        view: Option<&naive::View>,
        count: std::ops::RangeInclusive<usize>,
    ) -> Vec<u64> {
        let names = view.map_or(&[][..], |view| &view.names);
        let orphans = view.map_or(&[][..], |view| &view.orphans);
        let count = self.rng.usize(count);
        let mut wire = || match self.rng.u8(..10) {
            0..=6 if !names.is_empty() => names[self.rng.usize(..names.len())].0.0,
            7 if !orphans.is_empty() => orphans[self.rng.usize(..orphans.len())].0.0,
            _ => self.rng.u64(..self.wires),
        };
        (0..count).map(|_| wire()).collect()
    }
}
