//! A part rather than nothing, as whoever types it sees it.

use crate::support::{Manager, slow_rack};

#[tokio::test]
async fn what_is_left_out_is_named_and_the_exit_code_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let rack = folder.path().join("rack.toml");
    // The second of three binds is refused.
    let fault = "\n[[fault]]\nmethod = \"POST\"\npath = \"/redfish/v1/Fabrics/*/Zones/**\"\n\
                 after = 1\ntimes = 1\ndoes = { status = { code = 400 } }\n";
    std::fs::write(&rack, slow_rack("50ms") + fault).unwrap();
    let manager = Manager::start(folder.path(), &["--rack", rack.to_str().unwrap()]).await;
    let composed = manager
        .run("compose --gpus 3 --name web --partial-ok -o json")
        .await
        .expect(8, &["is completed: without ", "400", "the rest stands"])
        .json();
    assert_eq!(composed["operation"]["state"], "completed");
    let left_out = &composed["operation"]["left_out"];
    assert_eq!(left_out.as_array().unwrap().len(), 1, "{left_out}");
    let gpu = left_out[0]["gpus"][0].as_str().unwrap();
    manager.run("ops list").await.expect(0, &["LEFT OUT", gpu, "400"]);
    let held = manager
        .run("get compositions -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(held[0]["held"].as_array().unwrap().len(), 2, "{held}");
    manager
        .run("release web --yes --partial-ok")
        .await
        .refused(2, &["--partial-ok"]);
    manager.run("release web --yes").await.expect(0, &[]);
    assert_eq!(manager.server.terminate().await, 0);
}
