//! The workloads of a mix, and their shares.

use crate::workload::Workload;
use std::fmt::{self, Display};
use std::str::FromStr;

/// The workloads of a mix, and their shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix(Vec<(Workload, u32)>);

/// The largest accepted share. It ensures that no sum of shares overflows.
const MOST: u32 = 1_000_000;

impl Mix {
    /// Returns the workloads, each once.
    pub fn workloads(&self) -> impl Iterator<Item = Workload> + '_ {
        self.0.iter().map(|(workload, _)| *workload)
    }

    /// Returns the sum of the shares.
    pub(crate) fn all(&self) -> u32 {
        self.0.iter().map(|(_, share)| share).sum()
    }

    /// Returns the index of the workload whose share includes `point`, if the shares are laid end
    /// to end. `point` must be below the sum of the shares.
    pub(crate) fn at(&self, mut point: u32) -> usize {
        for (n, (_, share)) in self.0.iter().enumerate() {
            match point.checked_sub(*share) {
                Some(left) => point = left,
                None => return n,
            }
        }
        0
    }
}

/// The default: many look-ups, some creations, few writes.
impl Default for Mix {
    fn default() -> Mix {
        Mix(vec![
            (Workload::Stat, 50),
            (Workload::OpenClose, 20),
            (Workload::CreateUnlink, 20),
            (Workload::Append, 10),
        ])
    }
}

impl Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|(workload, share)| format!("{workload}={share}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Mix {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Mix, String> {
        let mut parts: Vec<(Workload, u32)> = Vec::new();
        for part in text.split(',') {
            let Some((name, share)) = part.split_once('=') else {
                return Err(format!("'{part}' is not WORKLOAD=SHARE, as stat=70"));
            };
            let workload: Workload = name.parse()?;
            if !workload.can_be_mixed() {
                return Err(format!("{workload} cannot be part of a mix: it is done in passes"));
            }
            if parts.iter().any(|(other, _)| *other == workload) {
                return Err(format!("{workload} is there twice"));
            }
            let share = share.parse().ok().filter(|share| (1..=MOST).contains(share));
            parts.push((
                workload,
                share.ok_or_else(|| {
                    format!("'{part}': a share is a whole number from 1 to {MOST}")
                })?,
            ));
        }
        Ok(Mix(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept() {
        let mix: Mix = "direct-read=7,overwrite=3".parse().expect("two workloads");
        assert_eq!(mix.to_string(), "direct-read=7,direct-write=3");
        let reads = (0..mix.all()).filter(|point| mix.at(*point) == 0).count();
        assert_eq!((reads, mix.all()), (7, 10));
    }

    #[test]
    fn an_impossible_mix_is_refused() {
        let wrong = [
            ("", "is not WORKLOAD=SHARE"),
            ("stat", "is not WORKLOAD=SHARE"),
            ("stat=0", "a share is a whole number"),
            ("stat=9999999", "a share is a whole number"),
            ("stat=1,stat=2", "is there twice"),
            ("mix=1", "cannot be part of a mix"),
            ("git-status=1", "cannot be part of a mix"),
            ("create=1", "cannot be part of a mix"),
            ("statt=1", "no such workload"),
        ];
        for (text, why) in wrong {
            let error = text.parse::<Mix>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(Mix::default().to_string().parse(), Ok(Mix::default()));
    }
}
