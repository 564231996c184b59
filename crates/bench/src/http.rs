//! One kept-alive HTTP/1.1 connection: requests go one after the other, never pipelined.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
}

/// A request without what every request of its connection carries.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Connection {
    /// Connects to `address`; `token` is sent with every request.
    pub(crate) async fn open(address: &str, token: Option<&str>) -> Result<Self, String> {
        let stream = TcpStream::connect(address)
            .await
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| format!("{address}: {error}"))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("{address}: {error}"))?;
        // The next request gets its error.
        tokio::spawn(driver);
        let value = |text: String| HeaderValue::try_from(text).map_err(|error| error.to_string());
        let authorization = token.map(|token| value(format!("Bearer {token}"))).transpose()?;
        Ok(Self { sender, host: value(address.to_owned())?, authorization })
    }

    /// Sends one request and reads its whole answer.
    pub(crate) async fn send(&mut self, call: Call<'_>) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() =
            call.path.parse().map_err(|error| format!("path `{}`: {error}", call.path))?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.exchange(request).await.map_err(|error| error.to_string())
    }

    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), hyper::Error> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}
