//! A bounded ZMTP 3.x client (work in progress).
