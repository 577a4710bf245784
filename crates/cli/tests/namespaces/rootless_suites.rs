//! pjdfstest on mounts of ordinary users: with `-o fakeroot,allow_other`, where the server checks
//! permissions, and in a user namespace.

use crate::mounting;

use crate::pjdfstest::{PJDFSTEST, outcomes, tool};
use crate::rootless::Scene;
use std::fs;

/// Returns a folder with pjdfstest; returns `None` and prints the reason if the host cannot run it.
fn scene() -> Option<Scene> {
    let program = tool("pjdfstest")?;
    let scene = Scene::new()?;
    fs::copy(program, scene.path().join("pjdfstest")).unwrap();
    fs::write(scene.path().join("pjdfstest.toml"), PJDFSTEST).unwrap();
    Some(scene)
}

const RUN: &str = "chmod 777 mnt
NO_COLOR=1 ./pjdfstest -c pjdfstest.toml -p $PWD/mnt >said 2>&1 || true
";

/// Returns the cases that failed, and prints the number of cases that passed.
fn failed(scene: &Scene) -> Vec<String> {
    let outcomes = outcomes(&fs::read_to_string(scene.path().join("said")).unwrap());
    let passed = outcomes.values().filter(|outcome| *outcome == "ok").count();
    println!("pjdfstest: {passed} of {} cases pass", outcomes.len());
    mounting::assert_clean(&scene.path().join("disk.img"));
    outcomes.into_iter().filter(|(_, outcome)| outcome == "FAILED").map(|(name, _)| name).collect()
}

#[test]
#[ignore = "long: a real mount"]
fn pjdfstest_passes_where_the_server_checks_permissions() {
    let Some(scene) = scene() else { return };
    // Root runs the suite, because the suite acts as several users.
    scene.run(&format!(
        "ann $L mkfs -q disk.img --size 256M
         ann $L mount -o fakeroot,allow_other disk.img mnt
         {RUN}
         ann $L umount mnt"
    ));
    let failed = failed(&scene);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
#[ignore = "long: a real mount"]
fn pjdfstest_passes_in_a_user_namespace_except_for_device_nodes() {
    let Some(scene) = scene() else { return };
    scene.run_in_namespace(&format!(
        "$L mkfs -q disk.img --size 256M
         $L mount disk.img mnt
         {RUN}
         $L umount mnt"
    ));
    let needs_device = |name: &String| {
        ["::block", "::char"].iter().any(|kind| name.ends_with(kind))
            || name.starts_with("mknod::privileged")
    };
    let (devices, others): (Vec<_>, Vec<_>) = failed(&scene).into_iter().partition(needs_device);
    println!("{} cases need device nodes", devices.len());
    assert!(!devices.is_empty() && others.is_empty(), "{others:#?}");
}
