//! What histories came across, so that a test of nothing is noticed.

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Of all histories of a family.
    pub(super) is_whole: bool,
    pub(super) hits: u64,
    pub(super) host_only: u64,
    pub(super) orphans: u64,
    pub(super) limits: u64,
    pub(super) conflicts: u64,
    pub(super) unknown_parents: u64,
    pub(super) unchanged: u64,
    pub(super) flips: u64,
    pub(super) full: u64,
}

impl Seen {
    fn counters(&mut self) -> [&mut u64; 9] {
        [
            &mut self.hits,
            &mut self.host_only,
            &mut self.orphans,
            &mut self.limits,
            &mut self.conflicts,
            &mut self.unknown_parents,
            &mut self.unchanged,
            &mut self.flips,
            &mut self.full,
        ]
    }

    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            hits,
            host_only,
            orphans,
            limits,
            conflicts,
            unknown_parents,
            unchanged,
            flips,
            full,
            is_whole: _,
        } = *other;
        let values = [
            hits,
            host_only,
            orphans,
            limits,
            conflicts,
            unknown_parents,
            unchanged,
            flips,
            full,
        ];
        for (counter, value) in self.counters().into_iter().zip(values) {
            *counter += value;
        }
    }

    pub(super) fn check(mut self) {
        let dump = format!("{self:?}");
        let least = self.counters().into_iter().map(|counter| *counter).min();
        assert!(
            !self.is_whole || least >= Some(200),
            "the histories miss something: {dump}"
        );
    }
}
