//! The processors of the machine: the kernel has a queue for each possible processor.

use std::io;

/// The numbers of the machine's processors.
pub struct Processors {
    /// The number of possible processors. Their queues are numbered from 0.
    pub possible: u16,
    /// The numbers of the processors that are online.
    pub online: Vec<u16>,
}

impl Processors {
    /// Reads the processors of this machine.
    ///
    /// # Errors
    /// The host does not provide the numbers of the processors.
    pub fn here() -> io::Result<Processors> {
        let list = |name: &str| {
            let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}"))?;
            numbers(&text).ok_or_else(|| io::Error::other(format!("processors: {text:?}")))
        };
        let possible = list("possible")?.len() as u16;
        let online = list("online")?.into_iter().filter(|n| *n < possible).collect();
        Ok(Processors { possible, online })
    }

    /// Returns the numbers of the processors that are not online: they have queues too.
    pub fn absent(&self) -> Vec<u16> {
        (0..self.possible).filter(|n| !self.online.contains(n)).collect()
    }
}

/// Parses a list such as `0-3,5`.
fn numbers(text: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// Binds the calling thread to a processor. If that is not allowed, the thread stays unbound, which
/// is slower but correct.
pub fn bind(processor: u16) {
    let mut set = rustix::thread::CpuSet::new();
    if usize::from(processor) < rustix::thread::CpuSet::MAX_CPU {
        set.set(processor.into());
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        assert_eq!(numbers("0-3,5\n"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!((numbers(""), numbers("a-b")), (None, None));
    }

    #[test]
    fn each_possible_processor_is_online_or_absent() {
        assert_eq!(Processors { possible: 6, online: vec![0, 2] }.absent(), [1, 3, 4, 5]);
        let here = Processors::here().unwrap();
        let mut all = [here.online.clone(), here.absent()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..here.possible).collect::<Vec<_>>());
    }
}
