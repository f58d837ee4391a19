//! What a body may cost that is larger than anybody has memory for. In a program of its own, where nothing else takes
//! memory meanwhile.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use poolwright_redfish::client::{Client, Endpoint, ErrorKind, Unreadable, WriteOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PIECE: usize = 64 * 1024;
const GIB: usize = 1 << 30;

/// So much of the memory of this program, in KiB, as the system has it.
fn memory(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Answers the root, and everything else with a body of that size and no announced length.
async fn serve(mut stream: TcpStream, size: usize) -> std::io::Result<()> {
    let mut request = vec![0; 16 * 1024];
    let got = stream.read(&mut request).await?;
    if request[..got].starts_with(b"GET /redfish/v1/ ") {
        let root = r#"{"RedfishVersion":"1.15.0","@odata.id":"/redfish/v1/"}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            root.len()
        );
        return stream.write_all(format!("{head}{root}").as_bytes()).await;
    }
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).await?;
    let piece = [
        format!("{PIECE:x}\r\n").into_bytes(),
        vec![b'['; PIECE],
        b"\r\n".to_vec(),
    ]
    .concat();
    for _ in 0..size / PIECE {
        stream.write_all(&piece).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

async fn giant(size: usize) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client hangs up in the middle.
            tokio::spawn(async move { drop(serve(stream, size).await) });
        }
    });
    Endpoint::new(&url).unwrap()
}

/// Fault 26: two GiB, and no end at all, read and as the answer to a write: at most 32 MiB at any time.
#[tokio::test]
async fn a_body_of_gibibytes_costs_mebibytes() {
    for size in [2 * GIB, usize::MAX] {
        let client = Client::connect(giant(size).await).await.unwrap();
        let before = memory("VmRSS");
        for _ in 0..4 {
            let error = client.get("/redfish/v1/Systems").await.unwrap_err();
            let limit = client.limits().document_bytes;
            assert_eq!(
                error.kind(),
                &ErrorKind::Unreadable(Unreadable::TooLarge { limit })
            );
            let nothing = json!({});
            let write = client.post("/redfish/v1/Systems", &nothing, WriteOptions::default());
            let error = write.await.unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::OutcomeUnknown { .. }),
                "{error}"
            );
        }
        let grown = memory("VmHWM").saturating_sub(before);
        assert!(grown <= 32 * 1024, "{grown} KiB more than before");
    }
}
