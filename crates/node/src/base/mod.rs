//! Parts that every door uses and that know no door: places, ports, metrics, the transfer log, the stop.

pub(crate) mod admission;
pub(crate) mod current;
pub(crate) mod filters;
pub(crate) mod idle;
pub(crate) mod metrics;
pub(crate) mod ports;
pub(crate) mod stop;
pub(crate) mod transfer_log;
