//! A state machine around a stream's place in a real index.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::directory::stream_views::StreamViews;
use crate::index::{Hit, PrefixIndex};
use crate::model::{BlockSpec, Limits, StreamKey};
use crate::stream::tests::rig::Rig;

pub(super) struct Whole {
    pub(super) rig: Rig<StreamViews>,
    index: Arc<PrefixIndex>,
}

impl Whole {
    pub(super) fn connected() -> Self {
        let index = PrefixIndex::new(BlockSpec {
            block_size_tokens: NonZeroU32::new(2).unwrap(),
            hash_seed: 1,
        });
        let limits = Limits::default();
        let writer = index
            .add_stream(StreamKey::new("a", 0), limits.max_blocks_per_stream)
            .unwrap();
        let mut rig = Rig::around(StreamViews::new(writer), limits);
        rig.connect();
        Self { rig, index }
    }

    /// Device tokens of the prompt made of the blocks that [`stored`] gives these names.
    ///
    /// [`stored`]: crate::stream::tests::rig::stored
    pub(super) fn hits(&self, names: &[u64]) -> u64 {
        self.hit(names).device_hit_tokens
    }

    pub(super) fn device_blocks(&self) -> u64 {
        self.hit(&[]).device_blocks
    }

    /// The last message that the view includes, or included.
    pub(super) fn sequence(&self) -> Option<u64> {
        self.hit(&[]).sequence.map(|sequence| sequence.0)
    }

    fn hit(&self, names: &[u64]) -> Hit {
        let token = |name: u64| u32::try_from(name).unwrap();
        let prompt: Vec<u32> = names
            .iter()
            .flat_map(|name| [token(name * 10), token(name * 10 + 1)])
            .collect();
        let matches = self.index.query_tokens(&prompt);
        matches.get(0).unwrap().1
    }
}
