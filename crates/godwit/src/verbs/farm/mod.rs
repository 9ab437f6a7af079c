//! `godwit farm`: files in fragments on many nodes.

mod demo;
mod hostfile;
mod import;
mod join;
mod make;
mod nodes;
mod run;
mod task;

pub(crate) use run::Printed;

use crate::out::{Facts, Run, Screen};
use clap::{Args, Subcommand};

/// Keep files in fragments on many nodes
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm import --lines --parts 2 notes.txt grid:/run7/notes.txt
  godwit farm demo --nodes 2 --dir farm

A file of the farm is cut into fragments, and each lies at one site of the catalog. Readers see
one file. godwit locate shows where the fragments lie.

Exit status: 0; 1 it failed; 2 wrong words; 4 no such file.")]
pub(crate) struct FarmArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Import(import::ImportArgs),
    Run(run::RunArgs),
    Hostfile(hostfile::HostfileArgs),
    Make(make::MakeArgs),
    Verify(make::VerifyArgs),
    Define(make::DefineArgs),
    Join(join::JoinArgs),
    Leave(join::LeaveArgs),
    Nodes(nodes::FarmNodesArgs),
    Drain(nodes::DrainArgs),
    Return(nodes::ReturnArgs),
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    Task(task::TaskArgs),
}

impl FarmArgs {
    pub(crate) fn run(self, screen: &'static Screen) -> Run<Facts> {
        match self.action {
            Action::Import(import) => import.run(screen),
            Action::Run(run) => run.run(screen),
            Action::Hostfile(hostfile) => hostfile.run(screen),
            Action::Make(make) => make.run(screen),
            Action::Verify(verify) => verify.run(screen),
            Action::Define(define) => define.run(screen),
            Action::Join(join) => join.run(screen),
            Action::Leave(leave) => leave.run(screen),
            Action::Nodes(nodes) => nodes.run(screen),
            Action::Drain(drain) => drain.run(),
            Action::Return(back) => back.run(),
            Action::Demo(demo) => demo.run(screen),
            Action::Task(task) => task.run(screen),
        }
    }
}
