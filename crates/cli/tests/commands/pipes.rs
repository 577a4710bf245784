//! Tests with closed pipes as standard output or standard error. A command still does all its work,
//! and prints no message about the pipe. Its exit code says that the output is incomplete.

use crate::mounting::{Image, LANEFS, assert_clean, run, shell, try_run, wait_for};
use std::fs::File;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

/// Returns the write end of a pipe whose read end is closed.
fn broken_pipe() -> Stdio {
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let pipe = child.stdin.take().unwrap();
    child.wait().unwrap();
    pipe.into()
}

/// Runs `command`, which must not hang.
fn ended(command: &mut Command) -> ExitStatus {
    let mut child = command.spawn().unwrap();
    let mut status = None;
    wait_for("the command", Duration::from_secs(60), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn an_image_has_no_name_before_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new.img");
    let mut command = Command::new(LANEFS);
    command.arg("mkfs").arg(&new).args(["--size", "auto", "--from", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Only a part of the archive is sent, so the command waits for the rest until it is killed.
    let mut pipe = child.stdin.take().unwrap();
    shell(dir.path(), "mkdir t; head -c 3M /dev/zero | tr '\\0' x >t/f; tar -cf t.tar t");
    let tar = std::fs::read(dir.path().join("t.tar")).unwrap();
    std::io::Write::write_all(&mut pipe, &tar[..2 << 20]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let left = || std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left().all(|name| name == "t" || name == "t.tar"), "{:?}", left().collect::<Vec<_>>());
    // If another program creates a file with the name of the new image while the command runs, the
    // command does not overwrite that file.
    command.stdin(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut pipe, &tar[..2 << 20]).unwrap();
    std::fs::write(&new, "of another program").unwrap();
    std::io::Write::write_all(&mut pipe, &tar[2 << 20..]).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("new.img: file exists"), "{said}");
    assert_eq!(std::fs::read(&new).unwrap(), b"of another program");
}

/// Creates an image with `n` directories `0/f`, `1/f` and so on, and next to it a tree `u` with
/// files of these names. A file cannot replace a directory, so copying each of these files fails.
fn tree_of_failures(n: usize) -> Image {
    let image = Image::new("32M");
    let line = format!(
        "i=0; while [ $i -lt {n} ]; do mkdir -p t/$i/f u/$i; echo x >u/$i/f; echo y >u/$i/g; i=$((i+1)); done"
    );
    shell(image.dir.path(), &line);
    let tree = image.dir.path().join("t/.");
    lanefs(&["cp", "-r", tree.to_str().unwrap(), &format!("{}:/", image.path.display())]);
    image
}

#[test]
fn a_copy_ends_though_no_process_reads_its_messages() {
    let image = tree_of_failures(40);
    let source = image.dir.path().join("u/.");
    let target = format!("{}:/", image.path.display());
    for jobs in ["1", "4"] {
        let status = ended(
            Command::new(LANEFS)
                .args(["cp", "-r", "-j", jobs, source.to_str().unwrap(), &target])
                .stderr(broken_pipe()),
        );
        assert_eq!(status.code(), Some(1), "{jobs} threads");
        // All other files were copied.
        assert_eq!(lanefs(&["cat", &format!("{target}39/g")]), "y\n");
        lanefs(&["rm", &format!("{target}39/g")]);
    }
    assert_clean(&image.path);
}

#[test]
fn the_exit_code_is_documented_also_if_standard_error_fails() {
    let image = Image::new("16M");
    let disk = image.path.to_str().unwrap();
    let none = format!("{disk}:/none");
    let here = image.dir.path().to_str().unwrap().to_owned();
    let lines: &[&[&str]] = &[
        &["ls", &none],
        &["cat", &none],
        &["stat", &none],
        &["tree", &none],
        &["rm", &none],
        &["cp", &none, &here],
        &["mv", &none, &here],
        &["df", "none.img"],
        &["info", "none.img"],
        &["mkfs", disk],
        &["mount", "none.img", &here],
        &["mount", "-f", "none.img", &here],
        &["umount", &here],
    ];
    for line in lines {
        for sink in [broken_pipe(), File::create("/dev/full").unwrap().into()] {
            let status = ended(Command::new(LANEFS).args(*line).stderr(sink));
            assert_eq!(status.code(), Some(1), "{line:?}");
        }
    }
    assert_eq!(ended(Command::new(LANEFS).arg("cp").stderr(broken_pipe())).code(), Some(2));
}

#[test]
fn a_reader_of_standard_output_that_goes_ends_the_output_quietly_with_1() {
    let image = Image::new("16M");
    let disk = image.path.to_str().unwrap();
    shell(image.dir.path(), "mkdir t; echo x >t/f; echo y >t/g; truncate -s 32M new.img");
    let at = |path: &str| format!("{disk}:{path}");
    let tree = image.dir.path().join("t/.");
    let new = image.dir.path().join("new.img");
    let lines: &[&[&str]] = &[
        &["cp", "-rv", tree.to_str().unwrap(), &at("/")],
        &["ls", "-l", disk],
        &["cat", &at("/f")],
        &["cp", &at("/f"), "-"],
        &["stat", &at("/f")],
        &["tree", disk],
        &["df", disk],
        &["info", disk],
        &["info", "--json", disk],
        &["mkfs", new.to_str().unwrap()],
    ];
    for line in lines {
        let child = Command::new(LANEFS)
            .args(*line)
            .stdout(broken_pipe())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line:?}");
        assert_eq!(output.status.code(), Some(1), "{line:?}");
    }
    // The first command, `cp`, has copied all files.
    assert_eq!(lanefs(&["cat", &at("/g")]), "y\n");
    // Other errors of standard output get a message.
    let full = format!("{LANEFS} cat {} >/dev/full", at("/g"));
    let (status, said) = try_run(Command::new("sh").args(["-c", &full]));
    assert_eq!(status.code(), Some(1));
    assert_eq!(said, "lanefs cat: standard output: no space left on device\n");
    let closed = |command: &str| {
        try_run(Command::new("sh").args(["-c", &format!("exec >&-; {LANEFS} {command}")]))
    };
    for command in [format!("cat {}", at("/g")), format!("ls {disk}"), format!("stat {disk}:/")] {
        let (status, said) = closed(&command);
        assert_eq!(status.code(), Some(1), "{command}");
        assert!(said.ends_with("standard output: closed\n"), "{said}");
    }
    let (status, said) = closed(&format!("touch {}", at("/g")));
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert_clean(&image.path);
    assert_clean(&new);
}
