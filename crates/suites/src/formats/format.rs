//! An option set of mke2fs, and the suites that run on it.

use crate::crash::{self, Cuts};
use crate::fill::{Scale, WideTimes};
use crate::fsx;
use crate::image::{Image, Mappings, block_size_of, cluster_size_of};
use crate::sequence::Mix;
use crate::together::{Bases, Runner, scenario_on};

/// An option set of mke2fs, with a size for the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The options, which include the block size.
    pub options: &'static str,
    /// The size, as an argument for mke2fs.
    pub size: &'static str,
}

impl Format {
    /// Makes an image. Returns `None` and prints the reason if mke2fs is missing.
    pub fn make(self) -> Option<Image> {
        Image::make(self.options, self.size)
    }

    /// Returns the scale of a small tree with every kind of object.
    pub fn scale(self) -> Scale {
        let block = block_size_of(self.options) as usize;
        let small = Scale { files: 300, depth: 8, ..Scale::of_image(16, block) };
        let wide_times = WideTimes::of(self.options);
        Scale { wide_times, ..small.with(Mappings::of(self.options)) }
    }

    /// Returns the file system type with which the kernel mounts the image.
    pub(super) fn kernel_type(self) -> &'static str {
        let mut words = self.options.split_whitespace();
        let named = words.find(|word| *word == "-t").and_then(|_| words.next());
        named.unwrap_or("ext4")
    }

    /// Runs random operations on four threads, `len` operations on each thread, and compares the
    /// results with the model.
    ///
    /// # Errors
    /// Returns the first difference from the model, with the shortest sequence found that leads to
    /// a difference.
    pub fn model(self, seed: u64, len: usize) -> Result<(), String> {
        let runner = Runner { bases: &Bases::default(), wrap: &|device| device };
        let mix = if seed.is_multiple_of(2) { Mix::ManySmall } else { Mix::FewLarge };
        runner.check(scenario_on((self.options, self.size), mix, seed, len))
    }

    /// Runs `count` random operations on one file, and compares the file's bytes after each
    /// operation.
    ///
    /// # Errors
    /// Returns the first wrong byte.
    pub fn bytes(self, seed: u64, count: u32) -> Result<(), String> {
        fsx::check_on(&Bases::default(), (self.options, self.size), seed, count)
    }

    /// Returns the reason why crash states cannot be judged, if there is one.
    pub fn without_crashes(self) -> Option<&'static str> {
        if self.kernel_type() == "ext2" || self.options.contains("^has_journal") {
            return Some("no journal");
        }
        // With clusters and quotas, e2fsck counts wrongly: when it deletes an orphan, it subtracts
        // only one block from the quota usage for each freed cluster.
        let clusters = cluster_size_of(self.options) != block_size_of(self.options);
        (clusters && self.options.contains("quota")).then_some("e2fsck counts wrong")
    }

    /// Checks the states at about `cuts` crashes of a workload of `ops` operations. Returns the
    /// number of states.
    ///
    /// # Errors
    /// Returns the first state in which a check fails.
    pub fn crashes(self, seed: u64, ops: usize, cuts: usize) -> Result<u64, String> {
        let found = crash::check_on((self.options, self.size), seed, ops, Cuts::About(cuts))?;
        Ok(found.states())
    }
}
