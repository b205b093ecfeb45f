// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/str.h"
#include "server/dashboard.h"

namespace trivet::server {
namespace {

constexpr size_t kConnections = 256;        // served at once, a thread each; more wait
constexpr int kBacklog = 512;               // connections that wait to be accepted
constexpr int kReadMs = 30000;              // for the next bytes of a request
constexpr int kWriteMs = 30000;             // for a client to take the next bytes of an answer
constexpr int kIdleMs = 15000;              // for the next request of a connection
constexpr int kStopMs = 2000;               // for clients to take the rest of their answers when all have ended
constexpr int kLingerMs = 200;              // for a client to stop sending
constexpr int64_t kLookUs = 100000;         // between looks at whether a streaming client is there
constexpr char kSocketHeader[] = "SOCKET";  // ours: the number of the request's socket

// Those of `events` that come in time.
short Poll(int fd, short events, int wait_ms) {
  pollfd polled{fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&polled, 1, wait_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0 ? static_cast<short>(polled.revents & events) : short{0};
}

// The client closed its side. One that only ends its sending looks the same, and is taken for gone.
constexpr short kGone = POLLRDHUP | POLLHUP | POLLERR;

bool Gone(int fd) { return Poll(fd, kGone, 0) != 0; }

// A connection's bytes, with limits on waiting.
class SocketStream : public httplib::Stream {
 public:
  explicit SocketStream(int fd) : fd_(fd) {}
  bool is_readable() const override { return begin_ < end_ || Poll(fd_, POLLIN, kReadMs) != 0; }
  bool is_writable() const override { return Poll(fd_, POLLOUT | kGone, kWriteMs) == POLLOUT; }
  ssize_t read(char* to, size_t size) override {
    if (begin_ == end_) {
      if (Poll(fd_, POLLIN, kReadMs) == 0) return -1;
      const ssize_t got = Retry([&] { return ::recv(fd_, buffer_, sizeof buffer_, 0); });
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(to, buffer_ + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    const auto send = [&] { return Retry([&] { return ::send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT); }); };
    const ssize_t sent = send();  // there is room most often: asking first would be another call of the system
    if (sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return sent;
    return Poll(fd_, POLLOUT, kWriteMs) == 0 ? -1 : send();
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return fd_; }
  bool has_buffered() const { return begin_ < end_; }

 private:
  template <class Call>
  static ssize_t Retry(const Call& call) {
    ssize_t done = 0;
    do {
      done = call();
    } while (done < 0 && errno == EINTR);
    return done;
  }

  const int fd_;
  char buffer_[16384];
  size_t begin_ = 0, end_ = 0;
};

bool Same(std::string_view a, std::string_view b) {
  // In a time that says nothing about where they differ.
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

void Send(const ApiAnswer& answer, httplib::Response* response) {
  response->status = answer.status;
  response->set_content(DumpJson(answer.body), "application/json");
  if (answer.status == 429) response->set_header("Retry-After", "1");
}

bool KnownPath(const std::string& path) {
  constexpr std::string_view kPaths[] = {
      "/",       "/dashboard.json", "/v1/models", "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
      "/health", "/version",        "/metrics",   "/tokenizer_info"};
  return std::find(std::begin(kPaths), std::end(kPaths), path) != std::end(kPaths);
}

bool TakesBody(std::string_view method) { return method == "POST" || method == "PUT" || method == "PATCH"; }

void SendError(const ApiError& error, httplib::Response* response) { Send(ErrorAnswer(error), response); }

// Sends events as they come, all from one call: between calls the library would look whether it is to stop.
void SendStream(std::shared_ptr<EventStream> stream, int fd, httplib::Response* response) {
  response->set_header("Cache-Control", "no-cache");
  // shared_ptr: the library copies what it calls.
  response->set_chunked_content_provider("text/event-stream", [stream, fd](size_t, httplib::DataSink& sink) {
    while (!stream->done()) {
      const std::string frames = stream->Next(kLookUs);
      if (frames.empty() ? Gone(fd) : !sink.write(frames.data(), frames.size())) return false;
    }
    sink.done();
    return true;
  });
}

}  // namespace

// The library's server with connections of ours: it cannot tell a handler that its client has left.
class HttpServer::Impl : public httplib::Server {
 public:
  explicit Impl(HttpOptions options) : options_(std::move(options)), stop_fd_(::eventfd(0, EFD_CLOEXEC)) {}
  ~Impl() override {
    Stop();
    ::close(stop_fd_);
  }

  Status Listen() {
    if (options_.port < 0 || options_.port > 65535) {
      return MakeError(Code::kUsage,
                       fmt::format("--port: expected 0 to 65535, found {}; choose another", options_.port));
    }
    new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
    set_tcp_nodelay(true);
    set_keep_alive_timeout(kIdleMs / 1000);  // what answers announce, as the number of requests
    set_keep_alive_max_count(1000000);
    // Not SO_REUSEPORT, the library's choice: two servers on one port would share its requests.
    set_socket_options([](socket_t fd) {
      const int yes = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_payload_max_length(static_cast<size_t>(kBodyLimits.max_bytes));
    errno = 0;
    port_ = options_.port == 0 ? bind_to_any_port(options_.host) : static_cast<int>(options_.port);
    if (port_ < 0 || (options_.port != 0 && !bind_to_port(options_.host, port_))) {
      return MakeError(Code::kIo, fmt::format("{}:{}: expected an address to listen on, found: {}; choose another with "
                                              "--host and --port",
                                              Quote(options_.host), options_.port,
                                              errno == 0 ? "no such host" : std::strerror(errno)));
    }
    ::listen(svr_sock_, kBacklog);  // again: the library's own backlog is 5
    return {};
  }

  void Accept(Api* api) {
    api_ = api;
    AddRoutes();
    listener_ = std::thread([this] { listen_after_bind(); });
  }

  int port() const { return port_; }
  const std::string& host() const { return options_.host; }

  void StopAccepting() {
    if (stopping_.exchange(true)) return;
    const uint64_t one = 1;
    if (::write(stop_fd_, &one, sizeof one) < 0) return;
    // Wakes the accepting thread. The library's own stop() would cut streams short.
    ::shutdown(svr_sock_, SHUT_RDWR);
  }

  void Stop() {
    StopAccepting();
    {
      std::unique_lock lock(mutex_);
      closed_.wait_for(lock, std::chrono::milliseconds(kStopMs), [this] { return open_.empty(); });
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    if (listener_.joinable()) {
      listener_.join();
    } else if (svr_sock_ >= 0) {  // the library closes it when it has accepted
      ::close(svr_sock_.exchange(-1));
    }
  }

 private:
  bool process_and_close_socket(socket_t fd) override {
    {
      const std::lock_guard lock(mutex_);
      open_.insert(fd);
    }
    SocketStream stream(fd);
    bool ok = true, closed = false;
    while (ok && !closed && (stream.has_buffered() || NextRequest(fd))) {
      ok = process_request(stream, stopping_, closed, [&](httplib::Request& request) {
        request.headers.erase(kSocketHeader);
        request.headers.emplace(kSocketHeader, std::to_string(fd));
        if (Authorized(request)) return;
        request.headers.erase("Connection");
        request.headers.emplace("Connection", "close");  // its body is not read
        closed = true;
      });
      closed = closed || stopping_;
    }
    // What the client still sends is read for a moment: unread bytes would take the answer with them.
    ::shutdown(fd, SHUT_WR);
    char ignored[4096];
    for (int i = 0; i < 256 && Poll(fd, POLLIN, kLingerMs) != 0 && ::recv(fd, ignored, sizeof ignored, 0) > 0;) ++i;
    const std::lock_guard lock(mutex_);
    open_.erase(fd);
    closed_.notify_all();
    ::close(fd);
    return ok;
  }

  // Waits for a request on an idle connection.
  bool NextRequest(int fd) const {
    pollfd polled[] = {{fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    const int ready = ::poll(polled, 2, kIdleMs);
    return ready > 0 && (polled[0].revents & POLLIN) != 0;
  }

  bool Authorized(const httplib::Request& request) const {
    if (options_.api_key.empty() || request.path == "/health" || request.path == "/") return true;
    return Same(request.get_header_value("Authorization"), "Bearer " + options_.api_key);
  }

  void AddRoutes() {
    using httplib::Request;
    using httplib::Response;
    set_pre_routing_handler([this](const Request& request, Response& response) {
      // The library would read what has no length until the connection ends.
      if (TakesBody(request.method) && !request.has_header("Content-Length") &&
          !request.has_header("Transfer-Encoding")) {
        SendError({411, "Content-Length: expected the length of the body, found none; give it, 0 for none", "", ""},
                  &response);
        return HandlerResponse::Handled;
      }
      if (Authorized(request)) return HandlerResponse::Unhandled;
      SendError({401, "Authorization: expected \"Bearer\" and this server's key, found another; give the key", "",
                 "invalid_api_key"},
                &response);
      response.set_header("WWW-Authenticate", "Bearer");
      return HandlerResponse::Handled;
    });
    Get("/v1/models", [this](const Request&, Response& response) { Send(api_->Models(), &response); });
    Get("/v1/models/(.+)",
        [this](const Request& request, Response& response) { Send(api_->Model(request.matches[1].str()), &response); });
    Get("/", [](const Request&, Response& response) {
      response.set_header("Content-Security-Policy",
                          "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'");
      response.set_content(DashboardPage().data(), DashboardPage().size(), "text/html; charset=utf-8");
    });
    Get("/dashboard.json", [this](const Request&, Response& response) { Send(api_->Dashboard(), &response); });
    Get("/health", [this](const Request&, Response& response) { Send(api_->Health(), &response); });
    Get("/version", [this](const Request&, Response& response) { Send(api_->Version(), &response); });
    Get("/metrics", [this](const Request&, Response& response) {
      response.set_content(api_->Metrics(), "text/plain; version=0.0.4; charset=utf-8");
    });
    Get("/tokenizer_info", [this](const Request&, Response& response) { Send(api_->TokenizerInfo(), &response); });
    Post("/tokenize",
         [this](const Request& request, Response& response) { Send(api_->Tokenize(request.body), &response); });
    Post("/detokenize",
         [this](const Request& request, Response& response) { Send(api_->Detokenize(request.body), &response); });
    Post("/v1/chat/completions",
         [this](const Request& request, Response& response) { Generate(&Api::Chat, request, &response); });
    Post("/v1/completions",
         [this](const Request& request, Response& response) { Generate(&Api::Completion, request, &response); });
    set_error_handler([](const Request& request, Response& response) { Explain(request, &response); });
    set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
      SendError({500, "server: expected memory for the request, found none; send less at a time", "", ""}, &response);
    });
  }

  void Generate(ApiAnswer (Api::*route)(const std::string&, const std::function<bool()>&),
                const httplib::Request& request, httplib::Response* response) {
    const int fd = std::atoi(request.get_header_value(kSocketHeader).c_str());
    ApiAnswer answer = (api_->*route)(request.body, [fd] { return Gone(fd); });
    if (answer.stream == nullptr) return Send(answer, response);
    SendStream(std::move(answer.stream), fd, response);
  }

  // Gives the library's own refusals a body.
  static void Explain(const httplib::Request& request, httplib::Response* response) {
    if (!response->body.empty()) return;
    const std::string what = Quote(request.method + " " + request.path);
    switch (response->status) {
      case 404:
        if (KnownPath(request.path)) {
          return SendError({405, what + ": expected the route's own method, found another; see docs/server.md", "", ""},
                           response);
        }
        return SendError(
            {404, what + ": expected a route of this server, found none; see docs/server.md", "", "not_found"},
            response);
      case 413:
        return SendError(
            {413,
             fmt::format("body: expected at most {} bytes, found more; send less at a time", kBodyLimits.max_bytes), "",
             ""},
            response);
      default:
        return SendError({response->status,
                          "request: expected HTTP/1.1 with a body of known length, found something "
                          "else; correct it",
                          "", ""},
                         response);
    }
  }

  Api* api_ = nullptr;
  const HttpOptions options_;
  const int stop_fd_;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread listener_;
  std::mutex mutex_;  // of what follows
  std::condition_variable closed_;
  std::set<int> open_;  // sockets of connections
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

HttpServer::Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::Listener::Listener(Listener&&) noexcept = default;
HttpServer::Listener::~Listener() = default;

Result<HttpServer::Listener> HttpServer::Listener::Bind(const HttpOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  TRY(impl->Listen());
  return Listener(std::move(impl));
}

std::unique_ptr<HttpServer> HttpServer::Start(Api* api, Listener listener) {
  listener.impl_->Accept(api);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(listener.impl_)));
}

int HttpServer::port() const { return impl_->port(); }

std::string HttpServer::url() const {
  const bool v6 = impl_->host().find(':') != std::string::npos;
  const std::string host = v6 ? "[" + impl_->host() + "]" : impl_->host();
  return fmt::format("http://{}:{}", host, impl_->port());
}

void HttpServer::StopAccepting() { impl_->StopAccepting(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace trivet::server
