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

use super::Facts;
use crate::{screen::Screen, trouble::Run};
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
pub(crate) struct Farm {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Import(import::Import),
    Run(run::Run),
    Hostfile(hostfile::Hostfile),
    Make(make::Make),
    Verify(make::Verify),
    Define(make::Define),
    Join(join::Join),
    Leave(join::Leave),
    Nodes(nodes::Nodes),
    Drain(nodes::Drain),
    Return(nodes::Return),
    Demo(demo::Demo),
    #[command(hide = true)]
    Task(task::Task),
}

impl Farm {
    pub(crate) fn run(self, screen: &'static Screen) -> Run<Facts> {
        match self.what {
            What::Import(import) => import.run(screen),
            What::Run(run) => run.run(screen),
            What::Hostfile(hostfile) => hostfile.run(screen),
            What::Make(make) => make.run(screen),
            What::Verify(verify) => verify.run(screen),
            What::Define(define) => define.run(screen),
            What::Join(join) => join.run(screen),
            What::Leave(leave) => leave.run(screen),
            What::Nodes(nodes) => nodes.run(screen),
            What::Drain(drain) => drain.run(),
            What::Return(back) => back.run(),
            What::Demo(demo) => demo.run(screen),
            What::Task(task) => task.run(screen),
        }
    }
}
