//! Copies of files at further sites.

use crate::{
    Logical,
    sites::{CopyAim, url_of},
};
use godwit_core::Fault;
use godwit_store::{
    Error, Result,
    engine::{CopyEvent, CopyOptions, CopyTask, OverwriteRule, copy},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

impl Logical {
    /// Copies a file to a site.
    pub(crate) fn copy_to(&self, site: &str, name: &Path) -> Result<()> {
        let options = self.sites.stores.options();
        let mut failures = self.copy_all(site, None, &[name.to_owned()], options)?;
        match failures.remove(name) {
            Some((Fault::Lasting, why)) => {
                Err(Error::unsupported(format!("a copy at {site}"), why))
            }
            Some((_, why)) => Err(Error::beyond("", why)),
            None => Ok(()),
        }
    }

    /// Copies files to a site; returns the errors of those that failed.
    pub(crate) fn copy_all(
        &self,
        site: &str,
        from: Option<String>,
        names: &[PathBuf],
        options: &CopyOptions,
    ) -> Result<HashMap<PathBuf, (Fault, String)>> {
        let source = self.aimed(CopyAim {
            from: from.clone(),
            ..CopyAim::default()
        });
        let target = self.aimed(CopyAim {
            site: Some(site.into()),
            from,
            copy: true,
            ..CopyAim::default()
        });
        // Of one store, so that small files go in packs.
        let root = url_of(Path::new(""))?;
        let (source, target) = (source.place(&root), target.place(&root));
        let mut tasks = Vec::new();
        for name in names {
            tasks.push(CopyTask {
                source: source.join(name)?,
                target: target.join(name)?,
                tree: false,
                mode: None,
                range: None,
                rule: OverwriteRule::Always,
                delete: false,
            });
        }
        let failures = Mutex::new(HashMap::new());
        copy(tasks, options, &|event| {
            if let CopyEvent::Failed {
                target,
                error,
                again: None,
                ..
            } = event
            {
                let why = (error.fault(), error.to_string());
                failures.lock().insert(target.path.clone(), why);
            }
        });
        options.cancel.check()?;
        Ok(failures.into_inner())
    }
}
