//! A directory's indexes: one for each way of naming blocks.

use std::sync::{Arc, OnceLock};

use super::directory::DirectoryError;
use crate::index::PrefixIndex;
use crate::model::{BlockSpec, Limits};

/// Only ever added to, so that a query finds them without a lock and an index is never gone under it. Nearly always
/// there is one: the streams of a fleet name their blocks alike.
#[derive(Debug)]
pub(super) struct Indexes([OnceLock<Arc<PrefixIndex>>; Self::MAX]);

impl Default for Indexes {
    fn default() -> Self {
        Self([const { OnceLock::new() }; Self::MAX])
    }
}

impl Indexes {
    /// Enough for every stream to name its blocks in a way of its own.
    pub(super) const MAX: usize = Limits::MAX_STREAMS;

    /// In the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<PrefixIndex>> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// The index, if there is exactly one.
    pub(super) fn only(&self) -> Option<&Arc<PrefixIndex>> {
        let [first, second, ..] = &self.0;
        first.get().filter(|_| second.get().is_none())
    }

    /// The index of blocks that are named by `spec`.
    pub(super) fn get_or_add(&self, spec: BlockSpec) -> Result<Arc<PrefixIndex>, DirectoryError> {
        let found = self
            .0
            .iter()
            .map(|place| place.get_or_init(|| PrefixIndex::new(spec)))
            .find(|index| index.spec() == spec);
        found.cloned().ok_or(DirectoryError::TooManySpecs)
    }
}
