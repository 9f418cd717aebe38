//! What a state machine must know of its stream.

use crate::decode::xllm;
use crate::model::Limits;

/// What the machine must know of its stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// The topic that live messages must carry, exactly.
    pub topic: Box<[u8]>,
    /// What every batch must agree with.
    pub expectation: xllm::Expectation,
    /// Bounds.
    pub limits: Limits,
    /// Seed of the jitter.
    pub seed: u64,
}
