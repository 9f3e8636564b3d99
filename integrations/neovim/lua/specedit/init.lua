--- Rewrites a buffer, or lines of it, with a running `specedit serve`. See :help specedit.
local buffer = require("specedit.buffer")
local stream = require("specedit.stream")

local M = {}

local api = vim.api
local uv = vim.uv or vim.loop
local namespace = api.nvim_create_namespace("specedit")
local BLINK = 100 -- milliseconds between two changes of the status

local config = {
  url = nil, -- of the server; vim.g.specedit_url or this machine's
  diff = true, -- show what changed
  context = false, -- with a range, also send the whole buffer, to be read
  request = {}, -- more fields of POST /v1/rewrite, such as max_tokens or temperature
}
local running = {} -- by buffer, what is being written

local function tell(sentence, level)
  vim.notify("specedit: " .. sentence:gsub("%s+", " "), level or vim.log.levels.INFO)
end

local function complain(sentence)
  tell(sentence, vim.log.levels.WARN)
end

function M.setup(options)
  for name, value in pairs(options or {}) do
    if not vim.tbl_contains({ "url", "diff", "context", "request" }, name) then
      complain(("setup() has no option %s: see :help specedit-setup."):format(name))
    else
      config[name] = value
    end
  end
end

local function address()
  local url = config.url or vim.g.specedit_url or "http://127.0.0.1:8317"
  return ((url:find("://", 1, true) and url or "http://" .. url):gsub("/+$", ""))
end

--- What the file is called, without its folder; its ending tells the language.
local function name_of(buf)
  local name = vim.fn.fnamemodify(api.nvim_buf_get_name(buf), ":t")
  local kind = vim.bo[buf].filetype
  return name ~= "" and name or kind ~= "" and "untitled." .. kind or "untitled"
end

--- Say at the line where the user was how far the answer is.
local function show_status(job)
  local now = uv.now()
  if job.shown and now - job.shown < BLINK or not api.nvim_buf_is_loaded(job.buf) then
    return
  end
  job.shown = now
  local row = job.mark and api.nvim_buf_get_extmark_by_id(job.buf, namespace, job.mark, {})[1] or job.row
  job.mark = api.nvim_buf_set_extmark(job.buf, namespace, row, 0, {
    id = job.mark,
    virt_text = { { M.status(job.buf), "Comment" } },
  })
end

--- What stands against taking a result for the text that was sent, or nil.
local function objection(job, result)
  local problem = result.problems[1]
  if result.finish_reason == "length" then
    return ("The answer was cut after %d tokens: select fewer lines, or raise max_tokens (:help specedit-setup)."):format(
      result.stats.completion_tokens
    )
  elseif problem and not (job.force and result.usable) then
    return problem.message .. (result.usable and " (:SpecEdit! forces it)" or "")
  elseif not api.nvim_buf_is_loaded(job.buf) then
    return "The buffer is gone, so the answer was not used."
  elseif buffer.text(job.buf, 1, -1) ~= job.whole then
    return "The buffer changed meanwhile, so the answer was not used: ask again."
  end
  return buffer.refusal(job.buf)
end

local function finish(job, result, fault)
  running[job.buf] = nil
  if job.mark and api.nvim_buf_is_loaded(job.buf) then
    api.nvim_buf_del_extmark(job.buf, namespace, job.mark)
  end
  if job.stopped then
    return tell(fault)
  end
  local why = fault or objection(job, result)
  if why then
    return complain(why)
  end
  local places = buffer.replace(job.buf, job.first, job.text, result.text, job.indent)
  local took = ("%d tokens in %.1f s"):format(job.tokens, (uv.now() - job.began) / 1000)
  if places == 0 then
    return tell(("Nothing to change (%s)."):format(took))
  end
  if config.diff then
    buffer.show(job.buf, job.name, job.whole, buffer.text(job.buf, 1, -1))
  end
  tell(("Changed in %d place%s (%s), u undoes it."):format(places, places == 1 and "" or "s", took))
end

--- Rewrite the current buffer. The command's arguments are these:
---@param instruction string What to change.
---@param options table|nil first, last: only these lines. force: take an answer in spite of its problems.
function M.edit(instruction, options)
  options = options or {}
  local buf = api.nvim_get_current_buf()
  local count = api.nvim_buf_line_count(buf)
  local first, last = math.max(options.first or 1, 1), math.max(options.last or count, 1)
  local job = {
    buf = buf,
    first = first,
    force = options.force,
    name = name_of(buf),
    row = math.max(api.nvim_win_get_cursor(0)[1] - 1, 0), -- while Neovim starts it is line 0
    whole = buffer.text(buf, 1, -1),
    tokens = 0,
    began = uv.now(),
  }
  job.text, job.indent = buffer.dedented(buffer.text(buf, first, last))
  if running[buf] then
    return complain("An answer for this buffer is on its way: wait for it, or :SpecEditCancel.")
  elseif buffer.refusal(buf) then
    return complain(buffer.refusal(buf))
  elseif not buffer.is_text(job.whole .. instruction) then
    return complain("The buffer holds bytes that are no text: reopen the file with its encoding (:help ++enc).")
  end

  local body = vim.tbl_extend("force", config.request, {
    text = job.text,
    instruction = instruction,
    name = job.name,
    stream = true,
  })
  if config.context and last - first + 1 < count then
    body.references = { ["whole file " .. job.name] = job.whole }
  end
  local key = (vim.env.SPECEDIT_API_KEY or ""):match("%S+")
  local stop, why = stream.post(address(), key, body, {
    piece = function(piece)
      job.tokens = job.tokens + #piece.tokens
      show_status(job)
    end,
    done = function(result, fault)
      finish(job, result, fault)
    end,
  })
  if not stop then
    return complain(why)
  end
  job.stop = function()
    job.stopped = true
    stop()
  end
  running[buf] = job
  show_status(job)
  -- Nobody waits for an answer for a buffer that is closed.
  api.nvim_buf_attach(buf, false, {
    on_lines = function()
      return running[buf] ~= job -- true: no longer of interest
    end,
    on_reload = function() end,
    on_detach = function()
      if running[buf] == job then
        vim.schedule(job.stop)
      end
    end,
  })
end

--- Stop the answer that is being written for the current buffer.
function M.cancel()
  local job = running[api.nvim_get_current_buf()]
  if not job then
    return tell("Nothing is being written for this buffer.")
  end
  job.stop()
end

--- A few words on how far the answer for a buffer is, by default the current one; "" without one. For a
--- statusline, and for waiting.
function M.status(buf)
  local job = running[buf or api.nvim_get_current_buf()]
  if not job then
    return ""
  end
  return job.tokens == 0 and "specedit: reading" or ("specedit: %d tokens"):format(job.tokens)
end

return M
