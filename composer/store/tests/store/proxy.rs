//! Something between a store and its database that breaks a connection just when it commits.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Where the connection breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never hears of the commit.
    Before,
    /// The server commits; its answer is lost.
    After,
}

#[derive(Default)]
struct Orders {
    next: Mutex<Option<Cut>>,
    cuts: AtomicU32,
    promoted: AtomicBool,
}

pub struct Proxy {
    pub port: u16,
    orders: Arc<Orders>,
}

impl Proxy {
    /// Passes everything on to the server at this port of the loopback.
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let orders = Arc::new(Orders::default());
        let given = Arc::clone(&orders);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
                tokio::spawn(pass_on(client, server, Arc::clone(&given)));
            }
        });
        Self { port, orders }
    }

    /// The next commit breaks its connection.
    pub fn cut_at_commit(&self, cut: Cut) {
        *self.orders.next.lock().unwrap() = Some(cut);
    }

    /// From now on the server says that it is in another of its lives, as a standby that was promoted would.
    pub fn promote(&self) {
        self.orders.promoted.store(true, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> u32 {
        self.orders.cuts.load(Ordering::SeqCst)
    }
}

/// What stands after an identifier of a server: eight digits.
fn another_timeline(sent: &mut [u8]) {
    const FIRST: &[u8] = b"/00000001";
    let at = sent.windows(FIRST.len()).position(|bytes| bytes == FIRST);
    if let Some(at) = at {
        sent[at + FIRST.len() - 1] = b'2';
    }
}

async fn pass_on(mut client: TcpStream, server: SocketAddr, orders: Arc<Orders>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let sent = &up[..read.unwrap_or(0)];
                let commits = sent.windows(7).any(|bytes| bytes == b"COMMIT\0");
                let cut = if commits { orders.next.lock().unwrap().take() } else { None };
                if sent.is_empty() || cut == Some(Cut::Before) {
                    orders.cuts.fetch_add(u32::from(cut.is_some()), Ordering::SeqCst);
                    return;
                }
                server.write_all(sent).await.unwrap();
                if cut == Some(Cut::After) {
                    // Its answer says that it is done; nobody gets to see it.
                    let _ = server.read(&mut down).await;
                    orders.cuts.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            read = server.read(&mut down) => {
                let sent = &mut down[..read.unwrap_or(0)];
                if orders.promoted.load(Ordering::SeqCst) {
                    another_timeline(sent);
                }
                if sent.is_empty() || client.write_all(sent).await.is_err() {
                    return;
                }
            }
        }
    }
}
