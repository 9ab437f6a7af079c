//! Identity of the caller, from its environment.

use crate::Environment;
use godwit_wire::{
    door::call::Link,
    local::{VERSION, request::Hello},
};
use std::{collections::BTreeMap, fs};

/// Returns what this process says of itself. `program` is what logs call it.
pub fn who(program: &str, environment: Environment<'_>) -> Hello {
    let text = |name: &str| {
        let value = environment(name)?.to_string_lossy().into_owned();
        let is_short = !value.is_empty() && value.len() <= VALUE_BYTES_MAX;
        is_short.then_some(value)
    };
    let path = |name: &str| {
        let path = environment(name).filter(|path| !path.is_empty())?;
        Some(Link(std::path::absolute(path).ok()?))
    };
    let job: BTreeMap<String, String> = JOB
        .iter()
        .filter_map(|&name| Some((name.to_owned(), text(name)?)))
        .collect();
    // Variables that other programs set too need not name a job's directory.
    let of_job = || (!job.is_empty()).then(|| path("TMPDIR")).flatten();
    let scratch = path("_CONDOR_SCRATCH_DIR").or_else(|| path("SLURM_TMPDIR"));
    Hello {
        version: VERSION,
        program: program.chars().take(PROGRAM_CHARS_MAX).collect(),
        session: text("GODWIT_SESSION"),
        scratch: scratch.or_else(of_job),
        credential: path("X509_USER_PROXY"),
        cgroup: cgroup().filter(|_| !job.is_empty()),
        visitor: None,
        catalog: text("GODWIT_CATALOG").map(|text| absolute(&text)),
        job,
    }
}

/// Returns the kernel's name of this program.
pub fn program() -> String {
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns the text of a catalog as it is understood in every directory.
fn absolute(text: &str) -> String {
    let file = text.strip_prefix("sqlite:").filter(|path| !path.is_empty());
    let path = file.and_then(|path| std::path::absolute(path).ok());
    path.map_or_else(
        || text.to_owned(),
        |path| format!("sqlite:{}", path.display()),
    )
}

/// Returns the group that the kernel keeps this process in (cgroups(7), version 2).
fn cgroup() -> Option<String> {
    let told = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = told.lines().find_map(|line| line.strip_prefix("0::"))?;
    (group.len() <= VALUE_BYTES_MAX).then(|| group.to_owned())
}

/// The variables in which batch systems, and nodes that run programs, name their jobs.
const JOB: [&str; 9] = [
    "GODWIT_JOB",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_PROCID",
    "PBS_JOBID",
    "LSB_JOBID",
    "JOB_ID",
    "_CONDOR_JOB_AD",
];

const VALUE_BYTES_MAX: usize = 1024;
const PROGRAM_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn a_job_is_told_by_its_variables() {
        let environment = |name: &str| {
            let value = match name {
                "SLURM_JOB_ID" => "77",
                "GODWIT_SESSION" => "run-1",
                "X509_USER_PROXY" => "/tmp/x509up_u7",
                "PBS_JOBID" => "",
                _ => return None,
            };
            Some(OsString::from(value))
        };
        let hello = who("test", &environment);
        assert_eq!(
            hello.job.get("SLURM_JOB_ID").map(String::as_str),
            Some("77")
        );
        assert_eq!(hello.job.len(), 1);
        assert_eq!(hello.session.as_deref(), Some("run-1"));
        assert_eq!(hello.credential.unwrap().0.to_str(), Some("/tmp/x509up_u7"));
        let unnamed = who("test", &|_| None);
        assert!(unnamed.job.is_empty() && unnamed.cgroup.is_none());
    }

    #[test] //= depot#commit-and-push
    fn job_scratch_directory_is_reported() {
        let scratch = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(set, _)| *set == name);
            let hello = who("test", &|name| Some(OsString::from(value(name)?.1)));
            hello.scratch.map(|path| path.0.display().to_string())
        };
        let (job, tmp) = (("SLURM_JOB_ID", "7"), ("TMPDIR", "/tmp/7"));
        assert_eq!(scratch(&[tmp]), None, "outside of a job");
        assert_eq!(scratch(&[job, tmp]).as_deref(), Some("/tmp/7"));
        let local = ("SLURM_TMPDIR", "/local/7");
        assert_eq!(scratch(&[job, tmp, local]).as_deref(), Some("/local/7"));
        let condor = ("_CONDOR_SCRATCH_DIR", "/execute/7");
        let all = scratch(&[condor, local, tmp]);
        assert_eq!(all.as_deref(), Some("/execute/7"));
    }
}
