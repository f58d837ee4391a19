//! What goes wrong before anything is done: the exit code, what, where, why, and what next. Nothing changes.

use crate::support::{Manager, Rack, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A web server that is no Redfish service.
async fn web_page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let page = "<html><body>Log in</body></html>";
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
                page.len()
            );
            let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
        }
    });
    url
}

/// An address at which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn wrong_hosts() {
    let nobody = nobody().await;
    run(&format!("discover --endpoint https://{nobody}"))
        .await
        .refused(10, &[&nobody, "refused"]);
    run("discover --endpoint https://no-such-host.invalid")
        .await
        .refused(10, &["no-such-host.invalid", "name"]);
    run("discover --endpoint http://192.0.2.1")
        .await
        .refused(2, &["192.0.2.1", "--insecure-http"]);
    run("discover --endpoint ftp://192.0.2.1")
        .await
        .refused(2, &["ftp", "https://HOST"]);
    let page = web_page().await;
    run(&format!("discover --endpoint {page}"))
        .await
        .refused(10, &[&page, "HTML", "not a Redfish service"]);
    let two = format!("discover --endpoint {page} --endpoint https://{nobody}");
    run(&two).await.refused(10, &["none of 2 endpoints"]);
}

/// Fault 94: the certificate of an endpoint.
#[tokio::test]
async fn wrong_authorities_and_passwords() {
    let (rack, other) = (Rack::start("small").await, Rack::start("small").await);
    let url = &rack.server.url;
    let account = format!("--username admin --password-file {}", rack.file("password"));
    run(&format!("discover --endpoint {url} {account}"))
        .await
        .refused(4, &[url, "certificate", "--ca"]);
    run(&format!(
        "discover --endpoint {url} {account} --ca {}",
        other.file("ca.pem")
    ))
    .await
    .refused(4, &[url, "certificate"]);
    run(&format!("discover --endpoint {url} {account} --ca no-such.pem"))
        .await
        .refused(3, &["no-such.pem"]);
    let password = rack.file("password");
    run(&format!("discover --endpoint {url} {account} --ca {password}"))
        .await
        .refused(2, &[&password, "no certificate"]);
    run(&format!("discover --endpoint {url} {account} --pin abc"))
        .await
        .refused(2, &["abc", "64 hexadecimal"]);
    let wrong = format!(
        "--username admin --password-file {} --ca {}",
        other.file("password"),
        rack.file("ca.pem")
    );
    run(&format!("discover --endpoint {url} {wrong}"))
        .await
        .refused(4, &[url, "password"]);
    let absent = format!(
        "--username admin --password-file no-such --ca {}",
        rack.file("ca.pem")
    );
    run(&format!("discover --endpoint {url} {absent}"))
        .await
        .refused(3, &["no-such"]);
    assert!(rack.bindings().is_empty());
}

#[tokio::test]
async fn wrong_racks_and_models() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rack.toml");
    std::fs::write(&file, "name = \"x\"\nstyle = \"zones\"\nnumber_of_wheels = 4\n").unwrap();
    run(&format!("emulate --rack {}", file.display()))
        .await
        .refused(2, &["rack.toml", "number_of_wheels", "style"]);
    run(&format!("demo --rack {}", file.display()))
        .await
        .refused(2, &["rack.toml", "number_of_wheels"]);
    // The manager finds both out before it keeps anything.
    let kept = folder.path().join("pool");
    let serve = format!("serve --data-dir {}", kept.display());
    run(&format!("{serve} --listen 127.0.0.1:0 --rack {}", file.display()))
        .await
        .refused(2, &["rack.toml", "number_of_wheels"]);
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    run(&format!("{serve} --listen {address} --rack small"))
        .await
        .refused(10, &["can't listen", &address.to_string()]);
    assert!(!kept.exists(), "nothing was kept");
    run(&format!(
        "serve --data-dir {} --listen 127.0.0.1:0",
        file.display()
    ))
    .await
    .refused(1, &["rack.toml", "it is a file, and a folder is wanted"]);
    run(&format!("{serve} --listen 127.0.0.1:0 --name https://pool"))
        .await
        .expect(2, &["--name", "pool.example.com"]);
    run("emulate --rack no-such")
        .await
        .refused(3, &["no-such", "small"]);
    run("size Lama-3.1-8B")
        .await
        .refused(3, &["Lama-3.1-8B", "did you mean Llama-3.1-8B"]);
    run("size 8B --kind h1000")
        .await
        .refused(3, &["h1000", "h100-pcie-80gb"]);
    let told = run(&format!("size 8B --task full --calibration {}", file.display())).await;
    told.refused(2, &["rack.toml", "not JSON"]);
    run("size 8B --rule no-such")
        .await
        .refused(3, &["no-such", "liqid"]);
    run("size 8B --task full --weights fp8")
        .await
        .refused(2, &["weights", "serving"]);
}

#[tokio::test]
async fn what_can_not_be_read_is_told_with_what_could_be() {
    for (line, words) in [
        ("limits set --per-hour abc", "a whole number, such as 8"),
        ("limits set --per-hour -1", "have no sign"),
        ("plan --instance x.json --time-limit -1s", "times have no sign"),
        (
            "serve --data-dir x --listen 127.0.0.1",
            "ADDRESS:PORT, such as 127.0.0.1:8443",
        ),
        ("schedule next --from tomorrow", "such as 2026-12-01T20:00:00Z"),
        ("schedule next --from 2027-03-27", "such as 2026-12-01T20:00:00Z"),
    ] {
        let ran = run(line).await;
        for raw in ["invalid digit", "socket address syntax", "failed to"] {
            assert!(!ran.err.contains(raw), "{ran:?}");
        }
        ran.expect(2, &[words]);
    }
}

#[tokio::test]
async fn a_manager_is_asked_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "small"]).await;
    let before = manager.run("get gpus -o json").await.expect(0, &[]).json();

    manager
        .run("compose 400B --name big")
        .await
        .refused(5, &["400B", "hint: "]);
    manager
        .run("compose no-such-model")
        .await
        .refused(3, &["no-such-model"]);
    manager
        .run("compose --gpus 9 --name nine")
        .await
        .refused(5, &["nine"]);
    manager
        .run("compose --gpus 1 --kind h1000")
        .await
        .refused(3, &["h1000"]);
    manager.run("compose --gpus 1 --kind h100-pcie-80").await.refused(
        3,
        &["did you mean h100-pcie-80gb", "poolwright size --list kinds"],
    );
    manager
        .run("compose 400B --task full --explain")
        .await
        .refused(5, &["fits nowhere", "--task lora"]);
    manager.run("describe gpu no-such").await.refused(3, &["no-such"]);
    manager
        .run("describe host host-9")
        .await
        .refused(3, &["did you mean host-1?", "`poolwright get hosts`"]);
    manager.run("why demand/no-such").await.refused(3, &["no-such"]);
    manager
        .run("why host/host-1")
        .await
        .refused(2, &["host", "demand/NAME"]);
    manager
        .run("release no-such --yes")
        .await
        .refused(3, &["no-such"]);
    manager.run("ops show no-such").await.refused(3, &["no-such"]);
    manager
        .run("attach no-such --host host-1")
        .await
        .refused(3, &["no-such"]);
    manager
        .run("endpoint add here --url https://127.255.255.254:1")
        .await
        .refused(10, &["127.255.255.254"]);
    manager
        .run("endpoint add here --url https://127.255.255.254:1 --endpoint-pin abc")
        .await
        .refused(2, &["abc", "64 hexadecimal"]);
    manager
        .run("apply no-such.json")
        .await
        .refused(3, &["no-such.json"]);
    let window = [
        "schedule",
        "add",
        "night",
        "--opens",
        "8 o'clock",
        "--closes",
        "0 7 * * *",
        "--gpus",
        "1",
    ];
    manager
        .run_with(window)
        .await
        .refused(2, &["8 o'clock", "0 20 * * MON-FRI"]);

    for (line, words) in [
        ("account bind kimm Operator pool", "poolwright account list"),
        ("tenant remove kimm --yes", "poolwright tenant list"),
    ] {
        manager.run(line).await.refused(3, &["kimm", words]);
    }
    // Whose authority is not known here; --ca is the manager's.
    let unknown = Rack::start("small").await;
    manager
        .run(&format!("endpoint add e1 --url {}", unknown.server.url))
        .await
        .refused(4, &["certificate", "--endpoint-ca"]);

    for name in ["../etc", ".hidden", "a/b"] {
        for keep in ["demand add", "compose --name"] {
            manager
                .run(&format!("{keep} {name} --gpus 1"))
                .await
                .refused(2, &[name, "can't be the name", "letters, digits"]);
        }
    }

    manager
        .run("endpoint remove box-1")
        .await
        .refused(2, &["not a terminal", "--yes"]);
    for (destructive, code, name) in [
        ("release web", 3, "web"),
        ("detach gpu-1", 5, "gpu-1"),
        ("demand remove web", 3, "web"),
        ("schedule remove night", 3, "night"),
        ("ops cancel op-1", 3, "op-1"),
    ] {
        manager.run(destructive).await.refused(code, &[name]);
    }

    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "no password of anybody\n").unwrap();
    manager
        .run(&format!("get gpus --password-file {}", wrong.display()))
        .await
        .refused(4, &["admin", "password"]);
    let elsewhere = nobody().await;
    let other = Rack::start("small").await;
    manager
        .run(&format!("get gpus --ca {}", other.file("ca.pem")))
        .await
        .refused(
            4,
            &[
                &manager.server.url,
                "not signed by a CA",
                "--ca DATA_DIR/tls/ca.pem",
            ],
        );
    // What speaks TLS was asked in plain http.
    manager
        .run(&format!(
            "get gpus --server {}",
            manager.server.url.replace("https:", "http:")
        ))
        .await
        .refused(10, &["does not speak plain http", "https"]);
    manager
        .run("get gpus --server nowhere")
        .await
        .refused(2, &["address nowhere", "https://HOST"]);
    // Nobody comes back in time: the operation is named, and how to wait for it again.
    manager
        .run(&format!(
            "ops wait op-17 --timeout 1s --server https://{elsewhere}"
        ))
        .await
        .refused(
            7,
            &["asking again", "operation op-17", "poolwright ops wait op-17"],
        );
    manager
        .run(&format!("get gpus --server https://{elsewhere}"))
        .await
        .refused(10, &[&elsewhere, "poolwright serve"]);
    manager
        .run("get gpus --server http://192.0.2.1")
        .await
        .refused(2, &["192.0.2.1", "https"]);
    let page = web_page().await;
    manager
        .run(&format!("get gpus --server {page}"))
        .await
        .refused(10, &[&page, "not a Poolwright manager", "a web page"]);

    let dir = folder.path().to_str().unwrap();
    run(&format!("serve --data-dir {dir} --listen 127.0.0.1:0"))
        .await
        .refused(5, &[dir, "in use"]);
    let after = manager.run("get gpus -o json").await.expect(0, &[]).json();
    assert_eq!(after, before, "nothing changed");
    assert_eq!(
        manager
            .run("get ops -o json")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        0
    );
}
