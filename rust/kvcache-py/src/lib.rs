//! `kvcache._core`: the binding.
