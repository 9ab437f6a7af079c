//! Renames, removals, directories and attributes, as callers ask for them.

use crate::{
    By, Depot, Edit, Error, Result,
    plan::order::LENGTH,
    work::apply::{MODE, MTIME},
};
use godwit_core::{Url, deeds::Values};
use std::time::Duration;

/// Attributes to change; those that are `None` stay.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// When it was changed, since the epoch.
    pub mtime: Option<Duration>,
}

impl Depot {
    /// Renames a file or directory, in place of a file of that name: here at once, at the target after all
    /// that was promised of either name. It survives a power cut when this returns.
    pub fn rename(&self, url: &Url, to: &Url, by: By<'_>) -> Result<()> {
        self.inner.rename(url, to, by)
    }

    /// Removes a file, or an empty directory, likewise. Who has it open keeps it.
    pub fn unlink(&self, url: &Url, by: By<'_>) -> Result<()> {
        self.inner.unlink_name(url, by)
    }

    /// Makes a directory, likewise.
    pub fn mkdir(&self, url: &Url, by: By<'_>) -> Result<()> {
        self.inner.make_directory(url, by)
    }

    /// Changes attributes at the target, likewise.
    pub fn set(&self, url: &Url, attributes: &Attributes, by: By<'_>) -> Result<()> {
        let mut values = Values::new();
        if let Some(mode) = attributes.mode {
            values.insert(MODE.into(), mode.to_string().into_bytes());
        }
        if let Some(mtime) = attributes.mtime {
            values.insert(MTIME.into(), mtime.as_nanos().to_string().into_bytes());
        }
        if values.is_empty() {
            return Ok(());
        }
        self.inner.set_values(url, by, values)?;
        if let Some(mtime) = attributes.mtime {
            self.inner.set_time_here(url, by.who, mtime);
        }
        Ok(())
    }

    /// Cuts or extends a file to a length. What is not held here is not fetched for that: who reads it is
    /// told to come again until its target has done so.
    pub fn truncate(&self, url: &Url, size: u64, by: By<'_>) -> Result<()> {
        let entry = self.inner.plan().current_of(url, by.who);
        let is_here = entry.is_some_and(|entry| {
            let state = entry.lock();
            state.machine.is_whole() && !state.is_gone && !state.machine.is_blind()
        });
        if !is_here {
            let length = (LENGTH.to_owned(), size.to_string().into_bytes());
            let values = Values::from([length]);
            return self.inner.set_values(url, by, values);
        }
        let edit = Edit {
            session: by.session.into(),
            ..Edit::default()
        };
        let editing = self.edit(url, by.who, &edit)?;
        by.must_want()?;
        let cut = editing.file()?.set_len(size);
        cut.map_err(Error::disk(url.as_path()))?;
        editing.end_while(by.is_wanted).map(drop)
    }
}
