//! `godwit farm task`: the body of a task, which an engine starts on the machine of a node.

use crate::{
    args::NodeOptions,
    config,
    out::{CliError, Facts, Run, Screen},
    places,
    signals::SignalStop,
};
use clap::Args;
use godwit_core::Kind;
use godwit_node::run_task;
use godwit_wire::door::{
    call::{self, LINE_BYTES_MAX, Line, Refusal},
    run::AskRun,
};
use std::{
    io::{BufRead, Read},
    os::fd::AsFd,
};

/// Run one task on this machine, as standard input describes it
#[derive(Args, Debug)]
#[command(after_help = r#"Examples:
  echo '{"program":["wc","{in}"],"path":"a","fragment":0,"fragments":1,"job":""}' | godwit farm task
  godwit farm run --by 'ssh {host} godwit farm task' --plan grid:/run7/a -- wc -l {in}

A line of JSON describes the task, as the call run of a node does (docs/formats/run.md). The program
runs beside the file in the export that the configuration of this machine names, as the account
that says this. What it prints and how it ended come as lines of JSON, with {"beat":0} every five
seconds. Engines start this: farm run --by.

Exit status: that of the program; 1 it could not be run; 2 the line or the configuration is wrong."#)]
pub(super) struct TaskArgs {}

impl TaskArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut status = 0;
        let mut tell = |line: Line| {
            if let Line::Ended(code) = line {
                status = code;
            }
            let told = screen.bytes(&line.write()).and_then(|()| screen.flush());
            told.map_err(|error| Refusal::from(&error))
        };
        tell(Line::Beat(0))?;
        let done = perform(&mut tell);
        let last = match &done {
            Ok(()) => Line::End,
            Err(refusal) => Line::Error(refusal.clone()),
        };
        tell(last)?;
        done.map_err(|refusal| {
            let wanted = "run a task".into();
            CliError::from(Refusal { wanted, ..refusal })
        })?;
        match status {
            0 => Ok(Facts::new()),
            status => {
                let code = u8::try_from(status).unwrap_or(1);
                let fact = format!("the program ended with status {status}");
                Err(CliError::found("run a task", fact, code))
            }
        }
    }
}

fn perform(tell: &mut godwit_node::LineSink<'_>) -> Result<(), Refusal> {
    let invalid = |said: String| Refusal::of_kind(Kind::Invalid, said);
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock().take(LINE_BYTES_MAX as u64);
    let read = input.read_until(b'\n', &mut line);
    read.map_err(|cause| invalid(format!("standard input: {cause}")))?;
    let ask: AskRun =
        call::read(&line).map_err(|bad| invalid(format!("no task is described: {bad}")))?;
    let cancel = places::cancel().map_err(|error| invalid(error.fact().into()))?;
    let _stop = SignalStop::watch(cancel.clone());
    let config = config::load(&NodeOptions::default())
        .map_err(|error| invalid(CliError::from(error).fact().into()))?;
    if config.hop.is_some() {
        return Err(invalid(
            "the node of this machine passes on what it gets, and has no files".into(),
        ));
    }
    run_task(&ask, &config.export, cancel.as_fd(), tell)
}
