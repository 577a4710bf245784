//! Tests of the progress that builds report: the bytes that were read from the sources, and the
//! total if it can be known.

use crate::image::{scratch, shell};
use lanefs_build::{Builder, Progress, Room, Source, Spare};
use lanefs_device::RamDevice;
use lanefs_lanes::sync::unscheduled::Mutex;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Builds from a source, and returns all progress reports. Calls `on_call` for each of them.
fn progress_of(source: Source, on_call: impl Fn(Progress) + Sync) -> Vec<Progress> {
    let device = RamDevice::create(1 << 30).unwrap();
    let seen = Mutex::new(Vec::new());
    let tell = |now: Progress| {
        seen.lock().unwrap().push(now);
        on_call(now);
    };
    let builder = Builder::new().threads(1).room(Room::Fitted(Spare::default())).source(source);
    builder.progress(tell).build(&device).unwrap();
    seen.into_inner().unwrap()
}

fn len(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[test]
fn the_total_of_a_tar_is_its_length_and_that_of_a_pipe_is_unknown() {
    let dir = scratch();
    shell(dir.path(), "mkdir t; seq 400000 >t/a; seq 9 >t/b; tar -cf t.tar -C t .; gzip -k t.tar");
    for name in ["t.tar", "t.tar.gz"] {
        let path = dir.path().join(name);
        let seen = progress_of(Source::tar(&path), |_| ());
        assert!(seen.iter().all(|now| now.total == Some(len(&path))), "{seen:?}");
        let done = seen.last().unwrap().done;
        assert!(done <= len(&path) && done + (32 << 10) > len(&path), "{done} of {}", len(&path));
        let seen = progress_of(Source::stream(File::open(&path).unwrap()), |_| ());
        assert!(seen.iter().all(|now| now.total.is_none()), "{seen:?}");
        assert_eq!(seen.last().unwrap().done, done);
    }
}

#[test]
fn the_total_of_a_container_image_is_that_of_its_layers() {
    let dir = scratch();
    shell(
        dir.path(),
        r#"mkdir l; seq 100000 >l/a; tar -cf l.tar -C l .
        printf '{"rootfs":{"diff_ids":["sha256:%s"]}}' $(sha256sum <l.tar | cut -c1-64) >c.json
        echo '[{"Config":"c.json","Layers":["l.tar"]}]' >manifest.json
        tar -cf image.tar manifest.json c.json l.tar"#,
    );
    let seen = progress_of(Source::container(dir.path().join("image.tar"), None), |_| ());
    let layer = len(&dir.path().join("l.tar"));
    assert!(seen.iter().all(|now| now.total == Some(layer)), "{layer}: {seen:?}");
}

/// The builder adds up the sizes of a directory's files only if the build takes long. To make the
/// build take long, the progress function pauses at each call until the total is known.
#[test]
fn the_total_of_a_directory_is_the_data_of_its_files() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p t/d; for n in $(seq 100); do head -c 1M /dev/zero >t/d/$n; done
        truncate -s 1G t/hole; ln t/d/1 t/again",
    );
    let seen = progress_of(Source::directory(dir.path().join("t")), |now| {
        if now.total.is_none() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let last = seen.last().unwrap();
    assert_eq!((seen[0].total, last.total), (None, Some(100 << 20)), "{seen:?}");
    assert_eq!(last.done, 100 << 20);
}
