//! Files, records and their rows.

pub(crate) mod columns;
pub(crate) mod files;
pub(crate) mod frames;
pub(crate) mod logs;
pub(crate) mod quota;
pub(crate) mod records;
pub(crate) mod reserve;
pub(crate) mod rows;
