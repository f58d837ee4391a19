//! Serves a built-in rack until Ctrl-C: `cargo run -p poolwright-emulator --example serve -- zones DIR [ADDR]`.
//! Where the endpoints are, and the password, is written into DIR.

use poolwright_emulator::{Rack, ServeOptions, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which rack? such as: zones")?;
    let options = ServeOptions {
        data_dir: Some(
            arguments
                .next()
                .ok_or("which directory for endpoints.json?")?
                .into(),
        ),
        listen: arguments
            .next()
            .unwrap_or_else(|| "127.0.0.1:0".to_owned())
            .parse()?,
        fault_control: true,
        ..ServeOptions::default()
    };
    let running = serve(Rack::builtin(&name)?, options).await?;
    eprintln!("ready {}", running.endpoints()[0].url);
    tokio::signal::ctrl_c().await?;
    running.stop().await;
    Ok(())
}
