//! Who races: a command line, what its entries look like, and for how long it gets ready.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::programs::Programs;

/// One racer. It gets its task from the environment: `PORT`, `STREAM`, `GROUP`, `EXPECT`, and `LIVE` or `W3`.
#[derive(Debug, Clone)]
pub(crate) struct Racer {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Our own program, which makes the load.
    pub(crate) helper: PathBuf,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The field that it takes the payload from.
    pub(crate) field: &'static str,
    /// What its payloads are; `None` for what the workload says.
    pub(crate) kind: Option<&'static str>,
    /// What fills its stream, where our own program cannot: followed by the stream, the number of entries and their size.
    pub(crate) fill: Option<(PathBuf, Vec<OsString>, &'static str)>,
    /// How long a live race waits until it reads.
    pub(crate) warm_up: Duration,
}

impl Racer {
    fn new(programs: &Programs, name: &str, program: PathBuf, words: &str) -> Self {
        Self {
            name: name.to_owned(),
            program,
            helper: programs.client(),
            arguments: words.split_whitespace().map(OsString::from).collect(),
            environment: Vec::new(),
            field: "data",
            kind: None,
            fill: None,
            warm_up: Duration::from_secs(1),
        }
    }

    /// One of this repository.
    pub(crate) fn own(programs: &Programs, name: &str, words: &str) -> Self {
        Self::new(programs, name, programs.client(), words)
    }

    /// The same with its allocations counted.
    pub(crate) fn counted(programs: &Programs, words: &str) -> Self {
        Self::new(programs, "counted", programs.counted(), words).on_one_thread()
    }

    /// On a current-thread runtime.
    pub(crate) fn on_one_thread(self) -> Self {
        self.with("THREADS", "1")
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn taking(self, field: &'static str, kind: Option<&'static str>) -> Self {
        Self { field, kind, ..self }
    }

    fn slow_to_start(self) -> Self {
        Self { warm_up: Duration::from_secs(5), ..self }
    }
}

/// The other clients that are built; those that are not there are left out.
pub(crate) fn peers(programs: &Programs, live: bool) -> Vec<Racer> {
    let Some(folder) = programs.peers() else { return Vec::new() };
    let python = folder.join("py/bin/python");
    let program = |name: &str, path: &str, words: &str| Racer::new(programs, name, folder.join(path), words);
    let script = |name: &str, file: &str, words: &str| {
        let mut racer = Racer::new(programs, name, python.clone(), words).slow_to_start();
        racer.arguments.insert(0, folder.join("python").join(file).into());
        racer
    };
    let core = "core/target/release/benchcore";
    let mut racers = vec![
        program("peer floor", core, "consume two 1000"),
        program("redis-rs, raw, 2 readers", core, "consume s1e2 1000"),
        program("sea-streamer", "sea/target/release/sea", "disabled 1000").taking("msg", None),
        program("ruststream-fred", "rsfred/target/release/rsfred", "run")
            .taking("_payload", Some("string"))
            .with("JSONPAY", "1")
            .with("RSMODE", "batch1000p")
            .with("SKIND", "json"),
        script("redis-py", "s7.py", "1000"),
        script("faststream", "s6.py", "batch 1000").taking("__data__", None),
    ];
    if !live {
        // Its entries have a second field, which our own feeder does not write.
        let fill = (python.clone(), vec![folder.join("python/pop.py").into()], "prefect");
        racers.push(Racer { fill: Some(fill), ..script("prefect-redis", "s5.py", "1000").with("SKIND", "pf") });
    }
    racers.retain(|racer| racer.program.exists());
    racers
}
