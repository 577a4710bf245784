//! The machine on which results were measured.

use serde_json::{Value, json};
use std::fmt::{self, Display};
use std::fs;

/// The machine and its load.
#[derive(Debug, Clone)]
pub struct Machine {
    cpus: usize,
    model: String,
    kernel: String,
    load: String,
}

impl Machine {
    /// Returns this machine's properties and its present load.
    pub fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown processor", |(_, model)| model.trim());
        let load = read("/proc/loadavg");
        let uname = rustix::system::uname();
        Machine {
            cpus: Machine::processors(),
            model: model.into(),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            load: load.split_ascii_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns the number of processors that this process may use.
    pub fn processors() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    pub(crate) fn json(&self) -> Value {
        json!({"cpus": self.cpus, "model": self.model, "kernel": self.kernel, "load": self.load})
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpus, model, kernel, load } = self;
        write!(f, "{cpus} CPUs ({model}), {kernel}, load {load}")
    }
}
