//! Detects whether the node runs within a job of a batch system, by the kernel.
//!
//! Variables of a batch system can be lost on the way to a node; its control group cannot. In a namespace of groups
//! (`0::/`) the group is hidden, and the variables decide alone.

use std::fs;

/// Tells whether this process is kept by a batch system for one job: it ends with that.
pub(crate) fn is_within() -> bool {
    fs::read_to_string("/proc/self/cgroup").is_ok_and(|told| is_of_job(&told))
}

/// Tells whether the text of `/proc/PID/cgroup` names a job: lines `NUMBER:CONTROLLERS:PATH`, of either version
/// (cgroups(7)).
fn is_of_job(told: &str) -> bool {
    let mut paths = told.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.any(|path| {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        (0..names.len()).any(|nth| is_job(names[nth], &names[..nth]))
    })
}

/// Tells whether a group is that of a job, and not of the batch system's own daemons.
fn is_job(name: &str, above: &[&str]) -> bool {
    let is_below = |system: &str| above.iter().any(|name| name.starts_with(system));
    let is_numbered = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let numbered_job = name.strip_prefix("job_").is_some_and(is_numbered);
    let in_slurm = above.iter().any(|name| name.contains("slurm"));
    let in_pbs = ["pbs_jobs", "pbspro", "torque"].into_iter().any(is_below);
    numbered_job && in_slurm
        || is_below("htcondor")
        || name.starts_with("condor_") && name.contains("slot")
        || in_pbs && is_numbered(name)
        || is_below("lsf") && name.starts_with("job.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= depot#commit-and-push
    fn the_group_of_a_job_is_known() {
        let jobs = [
            "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n",
            "0::/system.slice/node7_slurmstepd.scope/job_123/step_batch/user/task_special\n",
            "12:pids:/\n4:memory:/slurm/uid_1000/job_123/step_0/task_0\n0::/\n",
            "5:freezer:/slurm_node7/uid_1000/job_9/step_extern\n",
            "0::/htcondor/condor_var_lib_condor_execute_slot1_1@node7\n",
            "0::/system.slice/htcondor.slice/slot1_2@node7\n",
            "3:cpu,cpuacct:/system.slice/condor_home_execute_slot1_3@node7\n",
            "0::/pbs_jobs.service/jobid/123.server\n",
            "2:cpuset:/pbspro.service/jobid/123.server\n",
            "2:cpuset:/pbspro/123.server\n",
            "2:cpuset:/torque/123.server\n",
            "9:memory:/lsf/cluster1/job.123.4567.1700000000\n",
        ];
        for told in jobs {
            assert!(is_of_job(told), "{told}");
        }
    }

    #[test]
    fn shells_and_batch_daemons_are_no_job() {
        let others = [
            "",
            "0::/\n",
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/godwit.service\n",
            "0::/system.slice/slurmd.service\n",
            "0::/system.slice/slurmstepd.scope/system\n",
            "0::/system.slice/condor.service\n",
            "0::/system.slice/pbs.service\n",
            "0::/lsf/daemons\n",
            "0::/docker/0123456789ab/job_7\n",
            "no line of this kind\n",
        ];
        for told in others {
            assert!(!is_of_job(told), "{told}");
        }
    }
}
