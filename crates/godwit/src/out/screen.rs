//! The output of a verb: results go to standard output, the rest to standard error.
//!
//! Under `--json` standard output carries one object a line and nothing else.
//! When the reader of standard output goes away, the verb stops quietly, and the
//! program ends as others do: by SIGPIPE.

use crate::{
    args::LogFormat,
    out::{
        CliError,
        error::{OUTPUT, Tally},
        plain,
    },
};
use godwit_store::{Error, door::RequestId};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    io::{self, BufWriter, IsTerminal, Stdout, Write},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How much is printed, and in which form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tone {
    /// JSON lines on standard output.
    pub(crate) json: bool,
    /// Only results and errors are printed.
    pub(crate) quiet: bool,
    /// How often `-v` was said.
    pub(crate) verbose: u8,
    /// Form of the log.
    pub(crate) log_format: LogFormat,
}

/// Standard output and standard error of one run.
pub(crate) struct Screen {
    tone: Tone,
    out: Mutex<Out>,
    gone: AtomicBool,
    /// Standard output is for the bytes of a file.
    aside: AtomicBool,
    told_of_output: AtomicBool,
    /// The id of the request at the nodes was printed.
    told_mark: AtomicBool,
    tally: Mutex<Tally>,
    bar: Mutex<Option<indicatif::ProgressBar>>,
}

struct Out {
    to: BufWriter<Stdout>,
    flushed_at: Option<Instant>,
}

impl Screen {
    /// Returns a screen without output so far.
    pub(crate) fn new(tone: Tone) -> Self {
        let to = BufWriter::with_capacity(64 << 10, io::stdout());
        Self {
            tone,
            out: Mutex::new(Out {
                to,
                flushed_at: None,
            }),
            gone: AtomicBool::new(false),
            aside: AtomicBool::new(false),
            told_of_output: AtomicBool::new(false),
            told_mark: AtomicBool::new(false),
            tally: Mutex::default(),
            bar: Mutex::default(),
        }
    }

    /// Returns how much is said, and in which form.
    pub(crate) fn tone(&self) -> Tone {
        self.tone
    }

    /// Tells whether results are JSON lines.
    pub(crate) fn json(&self) -> bool {
        self.tone.json
    }

    /// Tells whether only results and errors are wanted.
    pub(crate) fn quiet(&self) -> bool {
        self.tone.quiet
    }

    /// Tells whether each step is wanted.
    pub(crate) fn verbose(&self) -> bool {
        self.tone.verbose > 0 && !self.tone.json
    }

    /// Tells whether the reader of standard output has gone away.
    pub(crate) fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// From now on all but [`Screen::bytes`] goes to standard error, objects too.
    pub(crate) fn say_aside(&self) {
        self.aside.store(true, Ordering::Relaxed);
    }

    /// Prints one line of result. `text` may be any bytes; for a terminal, control characters are escaped.
    pub(crate) fn line(&self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let raw = text.as_ref();
        if self.aside.load(Ordering::Relaxed) {
            self.aside(&String::from_utf8_lossy(raw));
            return Ok(());
        }
        let shown = if io::stdout().is_terminal() {
            let text = plain(&String::from_utf8_lossy(raw)).into_owned();
            Cow::Owned(text.into_bytes())
        } else {
            Cow::Borrowed(raw)
        };
        self.suspend(|| {
            self.write(|out| {
                out.write_all(&shown)?;
                out.write_all(b"\n")
            })
        })
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        self.write(|out| out.write_all(bytes))
    }

    /// Prints a page of text; to a program as one object.
    pub(crate) fn page(&self, text: &str) -> Result<(), Error> {
        if self.tone.json {
            return self.object(&json!({ "event": "text", "text": text }));
        }
        self.bytes(text.as_bytes())
    }

    /// Prints one object of `--json`.
    pub(crate) fn object(&self, object: &Value) -> Result<(), Error> {
        self.line(object.to_string())
    }

    /// Prints an object at once; without a reader it is lost.
    pub(crate) fn event(&self, object: &Value) {
        let _ = self.object(object).and_then(|()| self.flush());
    }

    /// Prints a note to standard error, unless --quiet is set.
    pub(crate) fn note(&self, text: &str) {
        if !self.tone.quiet {
            self.aside(text);
        }
    }

    /// Reports an error, and counts it unless it is a consequence of others.
    pub(crate) fn trouble(&self, trouble: &CliError) {
        if self.gone() {
            return;
        }
        // A full standard output stays full, so that error is printed once.
        if trouble.is_of_output() && self.told_of_output.swap(true, Ordering::Relaxed) {
            return;
        }
        if !trouble.follows() {
            self.tally.lock().add(trouble.exit_code());
        }
        let mark = Some(mark()).filter(RequestId::is_told);
        if self.tone.json {
            let mut object = trouble.to_json();
            if let Some(mark) = &mark {
                object["request"] = mark.to_string().into();
            }
            // Without a reader the object is lost.
            let _ = self.object(&object);
            if self.aside.load(Ordering::Relaxed) {
                return; // said, and where objects go nothing else does
            }
        }
        self.aside(&trouble.to_string());
        if let Some(mark) = mark
            && !self.told_mark.swap(true, Ordering::Relaxed)
        {
            self.aside(&format!(
                "request: {mark}, in the logs of the nodes that were asked"
            ));
        }
    }

    /// Counts the exit status of a program, which has printed its own errors.
    pub(crate) fn ended_with(&self, code: u8) {
        if code != 0 {
            self.tally.lock().add(code);
        }
    }

    /// Returns the exit status so far.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.tally.lock().exit_code() {
            0 if self.gone() => OUTPUT_GONE,
            code => code,
        }
    }

    /// Tells whether [`Screen::object`] still has a reader.
    pub(crate) fn is_heard(&self) -> bool {
        !self.gone() || self.aside.load(Ordering::Relaxed)
    }

    /// Shows a bar below all other output, until `None` removes it.
    pub(crate) fn show(&self, bar: Option<indicatif::ProgressBar>) {
        if let Some(old) = std::mem::replace(&mut *self.bar.lock(), bar) {
            old.finish_and_clear();
        }
    }

    /// Flushes standard output.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let flushed = self.out.lock().to.flush();
        flushed.map_err(|cause| self.lost(cause))
    }

    /// Prints a line to standard error, also with --quiet.
    pub(crate) fn aside(&self, text: &str) {
        self.suspend(|| {
            // A closed standard error is no failure.
            let _ = writeln!(io::stderr().lock(), "{text}");
        });
    }

    fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        let bar = self.bar.lock().clone();
        match bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    fn write(&self, what: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
        if godwit_sys::is_output_closed() {
            return Err(Error::bad_name(OUTPUT, "it is closed"));
        }
        let mut out = self.out.lock();
        let written = what(&mut out.to).and_then(|()| out.flush_in_time());
        drop(out);
        written.map_err(|cause| self.lost(cause))
    }

    fn lost(&self, cause: io::Error) -> Error {
        if cause.kind() == io::ErrorKind::BrokenPipe {
            self.gone.store(true, Ordering::Relaxed);
            return Error::Canceled;
        }
        Error::io(OUTPUT, cause)
    }
}

impl Out {
    /// Flushes the first line at once and later ones in batches, a few milliseconds late.
    fn flush_in_time(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let fresh = self
            .flushed_at
            .is_some_and(|at| now.duration_since(at) < FLUSH_EVERY);
        if fresh && !io::stdout().is_terminal() {
            return Ok(());
        }
        self.flushed_at = Some(now);
        self.to.flush()
    }
}

const FLUSH_EVERY: Duration = Duration::from_millis(50);

/// 128 and the number of SIGPIPE.
pub(crate) const OUTPUT_GONE: u8 = 141;

/// Returns the id under which nodes log the requests of this program.
pub(crate) fn mark() -> RequestId {
    static MARK: OnceLock<RequestId> = OnceLock::new();
    MARK.get_or_init(RequestId::new).clone()
}
