//! Making again: a fragment that no site can give is computed from the history of its file.

use crate::{
    FarmEvent, FarmJob, FileDraft, FragmentSlot, Logical,
    alone::SoleMaker,
    failed, now,
    running::TaskOutputs,
    sites::{best, shown},
};
use godwit_catalog::{
    CatalogEntry as Named, CatalogHome, Change, MadeFile, NewHome, Ran, fragment_name, is_fragment,
    is_good,
};
use godwit_core::HomeState;
use godwit_store::{Error, Result};
use godwit_sys::platform;
use godwit_wire::door::{
    call::{Name, Text},
    run::{AskRun, OUT, Placed, Word},
};
use std::path::{Path, PathBuf};

impl Logical {
    /// Computes again a file or fragment that no site can provide. For a removed file that a run made, computes all of
    /// it. Returns the count of computed fragments.
    pub fn make(&self, name: &Path) -> Result<usize> {
        let asked = self.sites.catalog.make(name);
        if let Some(count) = asked.map_err(|refusal| failed(name, refusal))? {
            return Ok(usize::try_from(count).unwrap_or(usize::MAX));
        }
        LostFiles { names: self }.all(name, &mut Vec::new())
    }

    /// Runs the recipe of a file once more, and compares the result; equal bytes prove the recipe.
    pub fn verify(&self, name: &Path) -> Result<MadeFile> {
        LostFiles { names: self }.prove(name)
    }
}

/// Work on lost files, by this process.
struct LostFiles<'a> {
    names: &'a Logical,
}

impl LostFiles<'_> {
    /// Makes the lost parts of a file; `above`: the files that are made from it, to find circles.
    fn all(&self, name: &Path, above: &mut Vec<PathBuf>) -> Result<usize> {
        let Some(entry) = self.names.sites.find(name)? else {
            return self.removed(name, above);
        };
        if entry.collection {
            return Err(Error::directory(name));
        }
        let parts = entry.into_pieces();
        let mut count = 0;
        for part in parts {
            count += usize::from(self.one(&part, above)?);
        }
        Ok(count)
    }

    /// Makes a fragment, or a file in one piece, unless a site has it; tells whether it was made.
    fn one(&self, part: &Named, above: &mut Vec<PathBuf>) -> Result<bool> {
        let name = &part.name.0;
        if above.contains(name) || above.len() > DEPTH_MAX {
            let why = "its history leads back to itself, or too far";
            return Err(cannot(name, why));
        }
        let _turn = SoleMaker::take(&self.names.sites, name)?;
        let part = self.names.sites.file(name)?;
        if self.has_good(&part) {
            return Ok(false);
        }
        let (file, index) = split(name);
        let made = self.names.history(&file)?;
        let made = made.ok_or_else(|| {
            cannot(
                name,
                "no site has it, and it was not made by a run: register or write it again",
            )
        })?;
        above.push(name.clone());
        let done = self.rank(&part, &made, index, above);
        above.pop();
        done.map(|()| true)
    }

    /// Tells whether a site has the bytes that the catalog knows; notes which have others, or none.
    fn has_good(&self, part: &Named) -> bool {
        let mut homes = part.homes.iter().filter(|home| is_good(home, part));
        homes.any(|home| {
            let Ok(place) = self.names.sites.open(&home.url) else {
                return false;
            };
            let state = match best(&part.digests) {
                Some(known) => match self.names.sites.digest_at(&place, known.algorithm(), None) {
                    Ok(found) if found == *known => return true,
                    Ok(_) => HomeState::Damaged,
                    Err(Error::Missing { .. }) => HomeState::Lost,
                    Err(_) => return false,
                },
                None => return place.store.stat(&place.path).is_ok(),
            };
            self.names.sites.mark_as(&part.name.0, home, state);
            false
        })
    }

    /// Runs the task of a fragment again.
    fn rank(
        &self,
        part: &Named,
        made: &MadeFile,
        index: u64,
        above: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let name = &part.name.0;
        let mut last = cannot(name, "no node has its input");
        for home in self.input(made, index, above)? {
            let slot = match self.slot(part, &home) {
                Ok(slot) => slot,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match self.run(made, index, &home, slot) {
                Ok((slot, placed)) => return self.compare(part, slot, &placed),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns the homes of the input of a task, which is made first if no site has it.
    fn input(
        &self,
        made: &MadeFile,
        index: u64,
        above: &mut Vec<PathBuf>,
    ) -> Result<Vec<CatalogHome>> {
        let recipe = &made.ran.recipe;
        if recipe.programs.is_empty() && recipe.platform != platform() {
            let why = format!(
                "it was made on {}, and the nodes here are {}",
                recipe.platform,
                platform()
            );
            return Err(cannot(&made.name.0, &why));
        }
        for with in recipe.inputs.iter().filter(|input| input.whole) {
            self.all(&with.name.0, above)?;
        }
        let Some(input) = recipe.inputs.iter().find(|input| !input.whole) else {
            return self
                .names
                .anywhere(made.name.0.parent().unwrap_or(Path::new("")));
        };
        if self.names.sites.find(&input.name.0)?.is_none() {
            self.all(&input.name.0, above)?;
        }
        let entry = self.names.sites.file(&input.name.0)?;
        let parts = entry.into_pieces();
        let part = parts.get(usize::try_from(index).unwrap_or(usize::MAX));
        let known = input
            .digests
            .get(usize::try_from(index).unwrap_or(usize::MAX));
        let is_it = |part: &&Named| known.is_none_or(|known| part.digests.contains(known));
        let part = part.filter(|part| parts.len() as u64 == recipe.ranks && is_it(part));
        let part = part.ok_or_else(|| {
            let why = format!(
                "its input {} is another one now than version {}",
                shown(&input.name.0),
                input.version
            );
            cannot(&made.name.0, &why)
        })?;
        self.one(part, above)?;
        let part = self.names.sites.file(&part.name.0)?;
        Ok(part
            .homes
            .iter()
            .filter(|home| is_good(home, &part))
            .cloned()
            .collect())
    }

    /// Begins a copy of a fragment at the site of a home; a damaged or lost copy is dropped first.
    fn slot(&self, part: &Named, home: &CatalogHome) -> Result<FragmentSlot> {
        let name = &part.name.0;
        let site = self.names.aimed(crate::CopyAim {
            site: Some(home.site.clone()),
            last: true,
            data: true,
            ..crate::CopyAim::default()
        });
        for old in part.homes.iter().filter(|old| old.site == home.site) {
            site.discard(name, old)?;
        }
        let part = self.names.sites.file(name)?;
        FragmentSlot::begin(self.names, name, &home.site, Some(&part))
    }

    fn run(
        &self,
        made: &MadeFile,
        index: u64,
        home: &CatalogHome,
        slot: FragmentSlot,
    ) -> Result<(FragmentSlot, Placed)> {
        let recipe = &made.ran.recipe;
        let is_printed = recipe.printed || made.output == 1;
        let asked = AskRun {
            program: recipe.argv.clone(),
            fragment: index,
            fragments: recipe.ranks,
            job: format!("{}-again", made.ran.run),
            digest: self.digest_of_input(made, index),
            staging: self.names.bring(recipe, home)?,
            ..AskRun::default()
        };
        let slots = match is_printed {
            true => TaskOutputs {
                out: None,
                printed: Some(slot),
            },
            false => TaskOutputs {
                out: Some(slot),
                printed: None,
            },
        };
        let by = (self.names.sites.stores.options(), None);
        let (status, placed) = slots.run(home, &asked, by, &mut |_| Ok(()))?;
        match placed.into_iter().next() {
            Some(placed) => Ok(placed),
            None => {
                let why = format!("its program ended with status {status} at {}", home.site);
                Err(cannot(&made.name.0, &why))
            }
        }
    }

    fn digest_of_input(&self, made: &MadeFile, index: u64) -> Option<Text<godwit_core::Digest>> {
        let mut inputs = made.ran.recipe.inputs.iter();
        let input = inputs.find(|input| !input.whole)?;
        input.digests.get(usize::try_from(index).ok()?).cloned()
    }

    /// Publishes a result that is what the catalog knows; another one gets a name of its own.
    fn compare(&self, part: &Named, slot: FragmentSlot, placed: &Placed) -> Result<()> {
        let (name, found) = (&part.name.0, &placed.digest);
        let known = best(&part.digests);
        if known.is_none_or(|known| *known == found.0) {
            return slot.publish(placed.size, &found.0);
        }
        let (file, index) = split(name);
        let mut other = file.file_name().unwrap_or_default().to_owned();
        other.push(format!(".other-{}-{index}", now().as_millis()));
        let other = file.with_file_name(other);
        slot.keep_as(&other, placed)?;
        let known = known.map(ToString::to_string).unwrap_or_default();
        let found = format!(
            "{} from its program this time, kept as {}",
            found.0,
            shown(&other)
        );
        Err(Error::corrupt(name, known, found))
    }

    /// Makes a removed file by its history.
    fn removed(&self, name: &Path, above: &mut Vec<PathBuf>) -> Result<usize> {
        if above.contains(&name.to_owned()) || above.len() > DEPTH_MAX {
            return Err(cannot(
                name,
                "what it is made of leads back to itself, or too far",
            ));
        }
        let _turn = SoleMaker::take(&self.names.sites, name)?;
        if self.names.sites.find(name)?.is_some() {
            // Another process was faster.
            return Ok(0);
        }
        let made = match self.names.history(name) {
            Err(Error::Missing { .. }) => None,
            made => made?,
        };
        let Some(made) = made else {
            return self.defined(name, above);
        };
        above.push(name.into());
        let again = self.again(&made, name, above);
        above.pop();
        let (draft, ran) = again?;
        let told = crate::FileFacts {
            made: Some((ran.run.clone(), 0)),
            ..crate::FileFacts::default()
        };
        let count = ran.ranks.len();
        FileDraft::publish(vec![(draft, told)], Some(ran))?;
        Ok(count)
    }

    /// Makes a file that was defined and never computed.
    fn defined(&self, name: &Path, above: &mut Vec<PathBuf>) -> Result<usize> {
        let defined = self.names.defined(name)?;
        let defined = defined.ok_or_else(|| Error::missing(name))?;
        if self.names.sites.find(&defined.input)?.is_none() {
            above.push(name.into());
            let made = self.all(&defined.input, above);
            above.pop();
            made?;
        }
        let collect = Change::Collect {
            name: Name(name.parent().unwrap_or(Path::new("")).into()),
            parents: true,
        };
        self.names.sites.change(name, collect)?;
        let is_written = |word: &Word| word.0.to_string_lossy().contains(OUT);
        let is_written = defined.program.iter().any(is_written);
        let job = FarmJob {
            id: format!("{:x}-defined", now().as_nanos()),
            name: defined.input,
            kept: self.names.kept(&defined.program)?,
            program: defined.program,
            out: is_written.then(|| name.to_owned()),
            printed: (!is_written).then(|| name.to_owned()),
            ..FarmJob::default()
        };
        let (mut why, mut count) = (None, 0);
        let failed = self.names.run(&job, &mut |event| {
            match event {
                FarmEvent::Failed(_, error) => drop(why.get_or_insert(error)),
                FarmEvent::Ended { status, node, .. } if status != 0 => {
                    let said = format!("its program ended with status {status} at {node}");
                    why.get_or_insert_with(|| cannot(name, &said));
                }
                FarmEvent::Ended { .. } => count += 1,
                _ => {}
            }
            Ok(())
        })?;
        match failed {
            0 => Ok(count),
            _ => Err(why.unwrap_or_else(|| cannot(name, "a program failed"))),
        }
    }

    /// Runs all tasks of a recipe again into a draft of `name`; refused unless all bytes are equal to those before.
    fn again(
        &self,
        made: &MadeFile,
        name: &Path,
        above: &mut Vec<PathBuf>,
    ) -> Result<(FileDraft, Ran)> {
        let ranks = &made.ran.ranks;
        let draft = self.names.draft(name, ranks.len() as u64, None)?;
        let output = usize::try_from(made.output).unwrap_or(usize::MAX);
        let mut ran = Ran {
            run: format!("{}-{:x}", made.ran.run, now().as_nanos()),
            at_s: now().as_secs(),
            ..made.ran.clone()
        };
        ran.recipe.outputs = vec![Name(name.into())];
        ran.recipe.printed = made.ran.recipe.printed || made.output == 1;
        for (index, rank) in (0..).zip(&mut ran.ranks) {
            let mut last = cannot(name, "no node has its input");
            let mut done = None;
            for home in self.input(made, index, above)? {
                let slot = draft.slot(index, &home.site)?;
                match self.run(made, index, &home, slot) {
                    Ok((slot, placed)) => {
                        done = Some((slot, placed, home.site));
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            let (slot, placed, site) = done.ok_or(last)?;
            let known = rank.digests.get(output);
            if known != Some(&placed.digest) {
                slot.abandon();
                let known = known.map(|known| known.0.to_string()).unwrap_or_default();
                let found = format!("{} from its program this time, at {site}", placed.digest.0);
                let fragment = fragment_name(name, index, made.ran.ranks.len() as u64);
                return Err(Error::corrupt(fragment, known, found));
            }
            slot.publish(placed.size, &placed.digest.0)?;
            rank.node = site;
            rank.digests = vec![placed.digest];
        }
        Ok((draft, ran))
    }

    fn prove(&self, name: &Path) -> Result<MadeFile> {
        let made = self.names.history(name)?;
        let made = made.ok_or_else(|| cannot(name, "it was not made by a run"))?;
        let mut beside = name.file_name().unwrap_or_default().to_owned();
        beside.push(format!(".proof-{:x}", now().as_nanos()));
        // The draft goes with its bytes: they are needed for the comparison only.
        let (_draft, _) = self.again(&made, &name.with_file_name(beside), &mut Vec::new())?;
        let recipe = made.ran.recipe.id();
        self.names.sites.change(name, Change::Proved { recipe })?;
        Ok(MadeFile {
            is_proved: true,
            ..made
        })
    }
}

impl FragmentSlot {
    /// Gives the placed file a name.
    fn keep_as(self, name: &Path, placed: &Placed) -> Result<()> {
        let (location, path, intent) = self.at();
        let settled = Change::Settle { intent, home: None };
        let registered = Change::Register {
            name: Name(name.into()),
            size: Some(placed.size),
            digests: vec![placed.digest.clone()],
            mtime: None,
            mode: None,
            home: Some(NewHome {
                location,
                path: Name(path),
                verified_s: Some(now().as_secs()),
                ours: true,
                ..NewHome::default()
            }),
        };
        let changed = self.change(vec![settled, registered]);
        changed.map_err(|refusal| failed(name, refusal))
    }
}

/// Returns the file of a fragment, and its index; of a file in one piece itself and 0.
fn split(name: &Path) -> (PathBuf, u64) {
    if !is_fragment(name) {
        return (name.into(), 0);
    }
    let last = name.file_name().unwrap_or_default().to_string_lossy();
    let index = last.trim_start_matches('#').split('.').next();
    let index = index.and_then(|index| index.parse().ok());
    let file = name.parent().unwrap_or(Path::new("")).to_owned();
    (file, index.unwrap_or_default())
}

fn cannot(name: &Path, why: &str) -> Error {
    Error::unsupported(format!("making {} again", shown(name)), why)
}

const DEPTH_MAX: usize = 64;
