//! Where a copy of a block is.

/// A memory tier that the directory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The accelerator's own memory; `gpu` on the wire.
    Device,
    /// The host's memory; `cpu` on the wire.
    Host,
}

/// The tiers that hold a copy of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TierSet(u8);

impl TierSet {
    /// No copy anywhere.
    pub const NONE: Self = Self(0);

    const fn bit(tier: Tier) -> u8 {
        match tier {
            Tier::Device => 1,
            Tier::Host => 2,
        }
    }

    /// Whether `tier` holds a copy.
    #[must_use]
    pub const fn contains(self, tier: Tier) -> bool {
        self.0 & Self::bit(tier) != 0
    }

    /// Whether no tier holds a copy.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a copy; false when it was there.
    pub fn insert(&mut self, tier: Tier) -> bool {
        let new = !self.contains(tier);
        self.0 |= Self::bit(tier);
        new
    }

    /// Takes a copy away; false when it was not there.
    pub fn remove(&mut self, tier: Tier) -> bool {
        let was = self.contains(tier);
        self.0 &= !Self::bit(tier);
        was
    }

    /// The tiers in the set, Device first.
    pub fn iter(self) -> impl Iterator<Item = Tier> {
        [Tier::Device, Tier::Host]
            .into_iter()
            .filter(move |tier| self.contains(*tier))
    }
}
